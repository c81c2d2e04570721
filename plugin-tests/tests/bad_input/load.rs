//! Much at once: the largest message, and hundreds of connections.

use std::time::Instant;

use r2ccl_plugin_tests::net::{Buffer, Net, until};
use r2ccl_plugin_tests::process::alone;
use r2ccl_plugin_tests::stream::{Stream, Witness};

use crate::start_peer;

#[test]
fn the_largest_message_arrives_whole() {
    alone(the_largest_message_arrives_whole, &[], || {
        let net = Net::load();
        let (send, receive) = net.pair().expect("a connection");
        let words = (1 << 30) / 8;
        // One page in 64 is looked at, and the words around each possible seam of segments.
        let looked_at: Vec<usize> = (0..words)
            .step_by(32 << 10)
            .flat_map(|at| [at, at + 1, at + (32 << 10) - 1])
            .collect();
        let (mut source, sink) = (vec![0_u64; words], vec![0_u64; words]);
        looked_at
            .iter()
            .for_each(|at| source[*at] = *at as u64 ^ 0x5555_0000_AAAA_0000);
        let buffer = |memory: &[u64], comm| {
            let address = memory.as_ptr().expose_provenance();
            let mr = net
                .register(comm, address, words * 8)
                .expect("a registration");
            Buffer {
                address,
                bytes: words * 8,
                tag: 0,
                mr,
            }
        };
        let (source_buffer, sink_buffer) = (buffer(&source, send), buffer(&sink, receive));
        let start = Instant::now();
        let receive = net
            .irecv(receive, &[sink_buffer])
            .expect("posts")
            .expect("room");
        let send = net.send(send, source_buffer, receive);
        net.finish(&[receive, send]).expect("1 GiB");
        println!("# 1 GiB took {:?}", start.elapsed());
        for at in looked_at {
            // SAFETY: inside the buffer; the NIC has written there.
            let found = unsafe { sink.as_ptr().add(at).read_volatile() };
            assert_eq!(found, source[at], "word {at}");
        }
        assert_eq!(sink[words - 1], source[words - 1]);
    });
}

#[test]
fn hundreds_of_connections_between_two_processes() {
    alone(hundreds_of_connections_between_two_processes, &[], || {
        let net = Net::load();
        let witness = Witness::start(net);
        let (count, messages, bytes) = (300, 5, 1024);
        let mut peer = start_peer(&[]);
        let start = Instant::now();
        let comms = peer.connect_to(net, count);
        println!("# {count} connections took {:?}", start.elapsed());
        let sender = |comm| Stream::sender(net, comm, bytes);
        let mut streams: Vec<Stream> = comms.into_iter().map(sender).collect();
        peer.tell(&format!("receive {messages} {bytes}"));
        until("messages", || {
            for stream in &mut streams {
                stream.step(messages).expect("moves");
            }
            streams
                .iter()
                .all(|stream| stream.done == messages)
                .then_some(())
        });
        peer.answer().expect("all messages are right");
        println!(
            "# {messages} messages on each of them: done after {:?}",
            start.elapsed()
        );
        streams.into_iter().for_each(Stream::close);
        witness.finish();
    });
}
