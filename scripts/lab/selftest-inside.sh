#!/usr/bin/env bash
# The part of selftest.sh that runs inside the lab: devices, data, and the effect of each cut.
# shellcheck disable=SC2317  # functions that "expect" calls
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
. "$here/expect.sh"
. "$here/network.sh"

now() { echo "${EPOCHREALTIME/./}"; }

# Where the GID of a NIC's address is; where it is at first, if it is nowhere.
gid_index() {
    local index gid
    describe "$1"
    for index in {0..7}; do
        read -r gid <"/sys/class/infiniband/rxe_$1/ports/1/gids/$index"
        case "$gid" in *":ffff:0a0a:0${wire}0$host") echo "$index" && return ;; esac
    done
    echo 1
}

# moves WIRE SECONDS: whether a ping-pong between both hosts is over in time. Its processes find each
# other over loopback, so that it shows the RDMA path alone.
moves() {
    local wire=$1 limit=$2 server status=0
    timeout "$limit" ibv_rc_pingpong -e -g "$(gid_index "b$wire")" -n 20 -d "rxe_b$wire" >/dev/null 2>&1 &
    server=$!
    until ss -Hltn 'sport = 18515' | grep -q .; do kill -0 "$server" || return 1; done
    timeout "$limit" ibv_rc_pingpong -e -g "$(gid_index "a$wire")" -n 20 -d "rxe_a$wire" 127.0.0.1 >/dev/null 2>&1 || status=1
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    return "$status"
}

# Whether a TCP connection from host 0 to host 1 comes about over the wire of number 0.
tcp_passes() {
    perl -MIO::Socket::INET -e '
        my $door = IO::Socket::INET->new(Listen => 1, LocalAddr => "10.10.0.2") or die;
        my %to = (PeerAddr => "10.10.0.2", PeerPort => $door->sockport, Timeout => $ARGV[0]);
        exit !IO::Socket::INET->new(LocalAddr => "10.10.0.1", %to)' "$1"
}

# port DEVICE STATE: whether it gets there. The kernel may tell of a lost carrier a second late.
port() {
    local deadline=$(($(now) + 3000000))
    until grep -q ": $2" "/sys/class/infiniband/$1/ports/1/state"; do
        [ "$(now)" -lt "$deadline" ] || return 1
        sleep 0.01
    done
}

has_gid() {
    grep -qx "$2" "/sys/class/infiniband/$1/ports/1/gids/1" &&
        grep -qx 'RoCE v2' "/sys/class/infiniband/$1/ports/1/gid_attrs/types/1"
}

test_devices() {
    local nic devices
    devices=$(cd /sys/class/infiniband && echo ./*)
    expect 'four devices' [ "$devices" = './rxe_a0 ./rxe_a1 ./rxe_b0 ./rxe_b1' ]
    for nic in a0 a1 b0 b1; do expect "rxe_$nic is active" port "rxe_$nic" ACTIVE; done
    expect 'GID of a0' has_gid rxe_a0 0000:0000:0000:0000:0000:ffff:0a0a:0001
    expect 'GID of a1' has_gid rxe_a1 0000:0000:0000:0000:0000:ffff:0a0a:0101
    expect 'GID of b0' has_gid rxe_b0 0000:0000:0000:0000:0000:ffff:0a0a:0002
    expect 'GID of b1' has_gid rxe_b1 0000:0000:0000:0000:0000:ffff:0a0a:0102
}

# Data moves, and from the time it takes follows how long to wait until "nothing moves" is credible.
test_health() {
    local begin
    expect 'data moves on both wires' moves 1 20
    begin=$(now)
    expect 'data moves between a0 and b0' moves 0 20
    window=$((($(now) - begin) * 2))
    [ "$window" -gt 500000 ] || window=500000
    window=$((window / 1000000)).$(printf %06d $((window % 1000000)))
    expect 'TCP passes' tcp_passes 5
}

# test_way NIC HOW STATE: cuts a NIC of wire 0, and heals it. STATE is that of its port meanwhile.
test_way() {
    local nic=$1 how=$2
    lab-cut "$nic" "$how"
    expect "$nic $how: the port is $3" port "rxe_$nic" "$3"
    expect "$nic $how: no data moves" '!' moves 0 "$window"
    if [ "$how" = rdma ]; then
        expect "$nic $how: TCP passes" tcp_passes 5
    else
        expect "$nic $how: no TCP" '!' tcp_passes "$window"
    fi
    expect "$nic $how: the other wire works" moves 1 20
    lab-heal "$nic" "$how"
    expect "$nic $how healed: the port is active" port "rxe_$nic" ACTIVE
    expect "$nic $how healed: data moves" moves 0 20
    expect "$nic $how healed: TCP passes" tcp_passes 5
}

packets_lost() { tc -s -netns fabric qdisc show dev pb0 | grep -A1 'netem 10:' | grep -q 'dropped [1-9]'; }
received() { cat /sys/class/infiniband/rxe_b0/ports/1/hw_counters/rdma_recvs; }

# A ping-pong over a bad wire may hang at its end: if the last acknowledgement is lost, the peer is gone.
test_loss() {
    local before attempt
    before=$(received)
    lab-cut b0 loss:20
    for ((attempt = 0; attempt < 10; attempt++)); do
        moves 0 1 || true
        ! packets_lost || [ "$(received)" = "$before" ] || break
    done
    expect 'loss: packets are lost' packets_lost
    expect 'loss: data still arrives' [ "$(received)" -gt "$before" ]
    lab-heal b0
    expect 'loss healed: data moves' moves 0 20
    expect 'loss healed: nothing is lost' '!' packets_lost
}

test_devices
test_health
test_way b0 admin DOWN
test_way a0 carrier DOWN
test_way b0 deaf ACTIVE
test_way a0 mute ACTIVE
test_way b0 cut ACTIVE
test_way a0 rdma ACTIVE
test_way b0 gid ACTIVE
expect 'b0 gid healed: it has another index' [ "$(gid_index b0)" != 1 ]
test_loss
expect 'a wrong name is refused' '!' lab-cut c0 deaf 2>/dev/null
exit $((failures > 0))
