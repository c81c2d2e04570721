# Sourced by lab-cut and lab-heal: the ways to cut a NIC off, and their opposites.
# shellcheck shell=bash

# shellcheck source=scripts/lab/network.sh
. "${BASH_SOURCE[0]%/*}/network.sh"

# In the order in which they are healed: routes need the address.
readonly WAYS=(gid admin carrier deaf mute cut rdma loss pair)

ways() {
    cat <<'TEXT'
NIC is a0, a1, b0 or b1. HOW is one of
  admin    the host sets its NIC down
  carrier  the switch sets its port down, so the NIC loses its carrier
  deaf     nothing reaches the NIC any more; the link stays up, as for all below
  mute     nothing that the NIC sends arrives
  cut      both
  rdma     both, but only for RoCE: TCP between the hosts goes on
  loss     some of what should reach the NIC is lost: 5 of 100 packets, or as many as "loss:N" says
  gid      the NIC loses its address, and so its GID; healed, that comes late and at another index
  pair     what should reach the newest connected queue pair of the NIC is lost, all else arrives
TEXT
}

# check_arguments NIC HOW: ends the script if one is wrong.
check_arguments() {
    [ "${LAB:-}" = 1 ] || {
        echo "${0##*/}: there is something to cut only inside the lab; see scripts/lab.sh --help" >&2
        exit 2
    }
    case " ${NICS[*]} " in
    *" $1 "*) ;;
    *) echo "${0##*/}: no NIC '$1'" >&2 && exit 2 ;;
    esac
    case " ${WAYS[*]} " in
    *" ${2%%:*} "*) ;;
    *) echo "${0##*/}: no way '$2'" >&2 && exit 2 ;;
    esac
}

fabric_tc() { tc -netns "$FABRIC" "$@"; }

# add_filter NIC DIRECTION PREFERENCE MATCH...: what arrives at the switch is ingress, what leaves it is
# egress. Each way has a preference of its own, so that several can be in force at once.
add_filter() {
    local nic=$1 direction=$2 preference=$3
    shift 3
    fabric_tc filter replace dev "p$nic" "$direction" pref "$preference" handle 1 "$@" action drop
}

# Says nothing if there is none.
delete_filter() { fabric_tc filter del dev "p$1" "$2" pref "$3" 2>/dev/null || true; }

# newest_queue_pair NIC: its number; waits for one, since a broken one may just be made anew.
newest_queue_pair() {
    local number tries
    for tries in {1..50}; do
        number=$(rdma resource show qp link "rxe_$1/1" | awk '
            /type RC/ && /state RTS/ { for (word = 1; word < NF; word++)
                if ($word == "lqpn" && $(word + 1) > most) most = $(word + 1) }
            END { print most }')
        [ -z "$number" ] || { echo "$number" && return; }
        [ "$tries" = 50 ] || sleep 0.1
    done
    echo "${0##*/}: $1 has no connected queue pair" >&2
    return 1
}

cut_nic() {
    local nic=$1 how=$2 number
    case "$how" in
    admin) ip link set "$nic" down ;;
    carrier) ip -netns "$FABRIC" link set "p$nic" down ;;
    deaf) add_filter "$nic" egress 1 protocol all matchall ;;
    mute) add_filter "$nic" ingress 1 protocol all matchall ;;
    cut)
        add_filter "$nic" ingress 2 protocol all matchall
        add_filter "$nic" egress 2 protocol all matchall
        ;;
    rdma)
        add_filter "$nic" ingress 3 protocol ip flower ip_proto udp dst_port 4791
        add_filter "$nic" egress 3 protocol ip flower ip_proto udp dst_port 4791
        ;;
    loss) cut_nic "$nic" loss:5 ;;
    loss:*) fabric_tc qdisc replace dev "p$nic" parent 1:1 handle 10: netem loss "${how#loss:}%" ;;
    gid)
        describe "$nic"
        ip address del "$address/24" dev "$nic"
        ;;
    # The number stands 32 bytes into the packet: behind IPv4, UDP and four bytes of the RDMA header.
    pair)
        number=$(newest_queue_pair "$nic") || exit
        fabric_tc filter add dev "p$nic" egress pref 4 protocol ip u32 match ip protocol 17 0xff \
            match u32 "$number" 0x00ffffff at 32 action drop
        ;;
    esac
}

# While the address is not there yet another one takes the index that the GID had at first.
return_address() {
    local nic=$1 other
    describe "$nic"
    [ -z "$(ip -o address show dev "$nic" to "$address")" ] || return 0
    other=10.10.$wire.9$host/32
    ip address add "$other" dev "$nic"
    sleep 0.2
    ip address add "$address/24" dev "$nic"
    ip address del "$other" dev "$nic"
    routes_of "$nic" | ip -batch -
}

heal_nic() {
    local nic=$1 how=$2
    case "$how" in
    admin) ip link set "$nic" up && routes_of "$nic" | ip -batch - ;;
    # The NIC is up at once, the switch passes its packets a little later.
    carrier) ip -netns "$FABRIC" link set "p$nic" up && await_port "$nic" ;;
    deaf) delete_filter "$nic" egress 1 ;;
    mute) delete_filter "$nic" ingress 1 ;;
    cut) delete_filter "$nic" ingress 2 && delete_filter "$nic" egress 2 ;;
    rdma) delete_filter "$nic" ingress 3 && delete_filter "$nic" egress 3 ;;
    loss | loss:*) fabric_tc qdisc del dev "p$nic" parent 1:1 2>/dev/null || true ;;
    gid) return_address "$nic" ;;
    pair) delete_filter "$nic" egress 4 ;;
    esac
}
