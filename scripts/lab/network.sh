# Sourced inside the lab: its NICs and switches, and how to cut and heal them.
# shellcheck shell=bash
#
# Host 0 has the NICs a0 and a1, host 1 has b0 and b1. NIC number 0 of both hangs on one switch, number 1
# on another. The NICs are the near ends of virtual cables; the far ends are called as the NIC with a p
# before, and are ports of the switches, two bridges in the network namespace "fabric". The NICs of both
# hosts are in the first namespace, since Soft-RoCE moves data only there (before Linux 7).

readonly NICS=(a0 b0 a1 b1)
readonly FABRIC=fabric

# describe NIC: sets the variables below. Starting a process is slow in the lab: no functions that print.
describe() {
    case "$1" in
    a?) host=1 ;;
    b?) host=2 ;;
    esac
    wire=${1#?}
    address=10.10.$wire.$host
    hardware_address=02:00:00:00:0$wire:0$host
    peer_address=10.10.$wire.$((3 - host))
    peer_hardware_address=02:00:00:00:0$wire:0$((3 - host))
    # For what this NIC's address sends to its peer.
    table=1$wire$host
}

settings() {
    local pair
    for pair in "$@"; do echo "${pair#*=}" >"/proc/sys/net/ipv4/conf/${pair%%=*}"; done
}

# What one host sends to the other must leave by its NIC, though the kernel knows both addresses as its
# own: the table of local addresses comes last. RDMA names its NIC when it asks for a route, and takes
# the one that the kernel keeps; TCP does not, and has a table that says "unreachable" without the link.
rules_of() {
    describe "$1"
    echo "rule add pref $table iif lo oif $1 to $peer_address lookup main"
    echo "rule add pref 2$table iif lo from $address to $peer_address lookup $table"
    echo "route add unreachable default metric 4096 table $table"
}

# What the kernel forgets when somebody sets the NIC down. The peer's hardware address is there so that
# no queue pair waits for ARP.
routes_of() {
    describe "$1"
    echo "route replace $peer_address dev $1 src $address table $table"
    echo "neigh replace $peer_address lladdr $peer_hardware_address dev $1 nud permanent"
}

# ARP is a millisecond late. On a wire without any delay the answer arrives before the kernel's RDMA part
# has noted that it waits for one; it then looks again after a whole second.
delay_arp() {
    local port=$1
    echo "qdisc add dev $port root handle 1: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
    echo "qdisc add dev $port parent 1:2 handle 20: netem delay 1ms"
    echo "filter add dev $port parent 1: pref 1 protocol arp matchall classid 1:2"
    # Filters that cut hang here.
    echo "qdisc add dev $port clsact"
}

make_wires() {
    local nic
    ip netns add "$FABRIC"
    {
        echo "link set lo up"
        echo "rule add pref 5000 lookup local"
        echo "rule del pref 0"
        for nic in "${NICS[@]}"; do
            describe "$nic"
            echo "link add $nic mtu 4200 address $hardware_address" \
                "type veth peer name p$nic mtu 4200 netns $FABRIC"
            echo "addr add $address/24 dev $nic"
            rules_of "$nic"
        done
    } | ip -batch -
    {
        echo "link add switch0 type bridge forward_delay 0 stp_state 0 mcast_snooping 0"
        echo "link add switch1 type bridge forward_delay 0 stp_state 0 mcast_snooping 0"
        echo "link set switch0 up"
        echo "link set switch1 up"
        for nic in "${NICS[@]}"; do echo "link set p$nic master switch${nic#?} up"; done
    } | ip -netns "$FABRIC" -batch -
    for nic in "${NICS[@]}"; do delay_arp "p$nic"; done | tc -netns "$FABRIC" -batch -
}

# Waits until the switch passes packets of the NIC: what is sent earlier is lost.
await_port() {
    local attempt
    for ((attempt = 0; attempt < 150; attempt++)); do
        case "$(bridge -netns "$FABRIC" link show dev "p$1")" in *'state forwarding'*) return 0 ;; esac
        sleep 0.02
    done
    echo "lab: the switch port of $1 does not come up" >&2
    return 1
}

make_network() {
    local nic
    make_wires
    settings all/rp_filter=0 default/rp_filter=0
    for nic in "${NICS[@]}"; do
        settings "$nic/rp_filter=0" "$nic/accept_local=1" "$nic/arp_announce=2" "$nic/arp_ignore=1"
        echo "link set $nic up"
        routes_of "$nic"
    done | ip -batch -
    for nic in "${NICS[@]}"; do echo "link add rxe_$nic type rxe netdev $nic"; done | rdma --batch -
    for nic in "${NICS[@]}"; do await_port "$nic"; done
}
