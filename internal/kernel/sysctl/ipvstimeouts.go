package sysctl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
)

// IdleTimes are for how long IPVS keeps a connection on which nothing happens: an
// established one, one after its first FIN, one over UDP (ipvsadm --set). 0 means
// nothing.
type IdleTimes struct{ TCP, TCPFin, UDP time.Duration }

// IdleLimits are the times of a node that those of IPVS have to get along with. 0 is
// one that this kernel does not tell.
type IdleLimits struct {
	// How long connection tracking keeps the same three.
	Established, FinWait, UDPStream time.Duration
	// When TCP asks an idle peer whether it is there, where the socket wants it to
	// (SO_KEEPALIVE), and how often in what intervals it asks again before it gives up.
	Keepalive, Interval time.Duration
	Probes              int
}

// The keys that IdleLimits are read from.
const (
	keyEstablished = "net.netfilter.nf_conntrack_tcp_timeout_established"
	keyFinWait     = "net.netfilter.nf_conntrack_tcp_timeout_fin_wait"
	keyUDPStream   = "net.netfilter.nf_conntrack_udp_timeout_stream"
	keyKeepalive   = "net.ipv4.tcp_keepalive_time"
	keyInterval    = "net.ipv4.tcp_keepalive_intvl"
	keyProbes      = "net.ipv4.tcp_keepalive_probes"
)

// stock is the keepalive that a network namespace begins with, whatever the machine's
// own has (tcp_sk_init): that of a pod, unless the pod itself asks for another.
var stock = IdleLimits{Keepalive: 2 * time.Hour, Interval: 75 * time.Second, Probes: 9}

const (
	// idleMargin is for timers that fire late, and for the last probe's way.
	idleMargin = 5 * time.Minute
	// idleMost is what every kernel takes: INT_MAX jiffies at 1000 Hz are 24.8 days.
	idleMost = 24 * 24 * time.Hour
)

// IdleFix is the remedy for an IPVS timeout that is too short.
const IdleFix = "--ipvs-tcp-timeout=recommended (ipvsTimeouts: recommended in the file), or a longer time"

// IdleLimits reads those of the node. Without nf_conntrack its times are 0.
func (h *Handle) IdleLimits(ctx context.Context) (IdleLimits, error) {
	var l IdleLimits
	var probes time.Duration
	var errs []error
	for _, k := range []struct {
		key string
		to  *time.Duration
	}{
		{keyEstablished, &l.Established}, {keyFinWait, &l.FinWait}, {keyUDPStream, &l.UDPStream},
		{keyKeepalive, &l.Keepalive}, {keyInterval, &l.Interval}, {keyProbes, &probes},
	} {
		n, err := h.number(ctx, k.key)
		*k.to = time.Duration(n) * time.Second
		errs = append(errs, err)
	}
	l.Probes = int(probes / time.Second)
	return l, errors.Join(errs...)
}

// number reads a key that holds one number from 0 on; 0 for one that is not there.
func (h *Handle) number(ctx context.Context, key string) (uint64, error) {
	name, err := procfs.SysctlPath(key)
	if err != nil {
		return 0, err
	}
	text, err := h.files.Get(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	var n uint64
	if err == nil {
		n, err = strconv.ParseUint(text, 10, 31)
	}
	if err != nil {
		return 0, fmt.Errorf("read sysctl %s: %w", key, err)
	}
	return n, nil
}

// Recommended returns times by which IPVS, connection tracking and the peers drop a connection at
// about the same time.
//
// TCP: when IPVS drops a connection, it deletes the flow of connection tracking, too, and neither
// peer is notified: the next packet gets a reset or no answer. A socket with keepalive sends a
// probe after the keepalive time, and each answered probe restarts the time of IPVS. TCP itself
// gives up when all probes are lost. So IPVS waits for longer than that, and connections that are
// alive and ask for keepalive never end by it. The keepalive is the longer one of the node and of a
// namespace as the kernel makes it, since pods do not inherit the node's. More than connection
// tracking's own time would be for nothing: a connection that it has dropped has no way back, though IPVS
// would still know where to.
//
// FIN and UDP: as connection tracking has them. With longer times,
// connections that are over keep a draining destination busy, and a client's next UDP flow from the same
// port goes to an endpoint that only IPVS keeps. With shorter times, a half-closed connection or a
// UDP conversation that pauses loses its endpoint. A time that connection tracking does not have is left
// to the kernel.
func (l IdleLimits) Recommended() IdleTimes {
	tcp := min(max(l.patience(), stock.patience())+idleMargin, idleMost)
	if l.Established > 0 {
		tcp = min(tcp, l.Established)
	}
	return IdleTimes{TCP: tcp, TCPFin: min(l.FinWait, idleMost), UDP: min(l.UDPStream, idleMost)}
}

// patience is after what time of silence TCP with keepalive holds a peer for dead.
func (l IdleLimits) patience() time.Duration {
	return l.Keepalive + time.Duration(l.Probes)*l.Interval
}

// TooShort returns nil if IPVS keeps an idle TCP connection until connection tracking drops
// it or keepalive probes it, whichever is first. Otherwise it returns what is wrong
// (internal/DECISIONS.md, Idle timeouts).
func (l IdleLimits) TooShort(tcp time.Duration) error {
	least, why, key := l.Keepalive, "a keepalive probe would be sent after", keyKeepalive
	if least == 0 {
		least = stock.Keepalive
	}
	if l.Established > 0 && l.Established < least {
		least, why, key = l.Established, "connection tracking would keep it for", keyEstablished
	}
	if tcp >= least {
		return nil
	}
	return fmt.Errorf("IPVS drops an idle TCP connection after %s without telling client or server: %s %s (%s)", tcp, why, least, key)
}
