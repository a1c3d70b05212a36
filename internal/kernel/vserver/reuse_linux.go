package vserver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// reuseTimeout is far more than a probe needs: milliseconds where no packet is
// lost, and a second for each of four that may be.
const reuseTimeout = 15 * time.Second

// ProbeReuse finds out how this kernel takes a reused source port, by opening
// such connections through a virtual server with two destinations. Versions do
// not tell: distributions carry the two changes that matter (Linux 5.9 no longer
// drops the first packet when the new connection has no old entry in connection
// tracking, 5.16 lets mode 0 leave destinations of weight 0) in older kernels.
//
// It happens in a network namespace of its own, which vanishes with the thread it
// was made on, so nothing of the node is touched. That takes CAP_SYS_ADMIN and a
// writable /proc/sys. An error says nothing about the kernel's ways, and a rule by
// version has to do.
func ProbeReuse(ctx context.Context, log *zap.Logger) (Reuse, error) {
	return probeReuse(ctx, log, reuseSysctls)
}

// reuseSysctls are the settings besides conn_reuse_mode, those that a node has.
var reuseSysctls = map[string]string{"conntrack": "1", "expire_nodest_conn": "1"}

func probeReuse(ctx context.Context, log *zap.Logger, sysctls map[string]string) (Reuse, error) {
	ctx, cancel := context.WithTimeout(ctx, reuseTimeout)
	defer cancel()
	type result struct {
		reuse Reuse
		err   error
	}
	done := make(chan result, 1)
	go apart(func() {
		r, err := reuseInNamespace(ctx, log, sysctls)
		done <- result{r, err}
	})
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		r.err = ctx.Err()
	}
	if r.err != nil {
		return Reuse{}, fmt.Errorf("probe the reuse of source ports: %w", r.err)
	}
	return r.reuse, nil
}

// apart runs a function on a thread that ends with the calling goroutine, which
// has to return afterwards. The process's first thread never ends, so that one is
// left to wait for another.
func apart(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		f()
		return
	}
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

// reuseProbe is the node in small: in the namespace, clients, a virtual server
// and its two destinations all have loopback addresses.
type reuseProbe struct {
	handle  *Handle
	servers map[byte]DestinationKey // by the name that each answers with
	port    uint16                  // the last source port of a client
}

var (
	reuseVIP    = ServerKey{Addr: netip.AddrFrom4([4]byte{127, 0, 0, 10}), Port: 80, Protocol: ProtocolTCP}
	reuseClient = netip.AddrFrom4([4]byte{127, 0, 0, 1})
)

// reusePort is where both destinations listen.
const reusePort = 8080

// ftpPort makes connection tracking look at the namespace: it attaches when the
// first one there asks for it, and IPVS asks only when a virtual server of this
// port gets a destination (__ip_vs_update_dest). Nobody connects to it.
const ftpPort = 21

func reuseInNamespace(ctx context.Context, log *zap.Logger, sysctls map[string]string) (Reuse, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return Reuse{}, fmt.Errorf("make a network namespace (needs CAP_SYS_ADMIN): %w", err)
	}
	if err := upLoopback(); err != nil {
		return Reuse{}, fmt.Errorf("bring lo up: %w", err)
	}
	handle, err := New(log, Options{})
	if err != nil {
		return Reuse{}, err
	}
	defer handle.Close()
	p := &reuseProbe{handle: handle, servers: make(map[byte]DestinationKey), port: 40000}
	for key, value := range sysctls {
		if err := setReuseSysctl(key, value); err != nil {
			return Reuse{}, err
		}
	}
	stop, err := p.serve(ctx)
	defer stop()
	if err != nil {
		return Reuse{}, err
	}
	return p.ask(ctx)
}

// serve starts the two destinations and puts them behind the virtual server.
func (p *reuseProbe) serve(ctx context.Context) (stop func(), err error) {
	var listeners []*namedServer
	stop = func() {
		for _, l := range listeners {
			l.close()
		}
	}
	ftp := ServerKey{Addr: reuseVIP.Addr, Port: ftpPort, Protocol: ProtocolTCP}
	rows := []DestinationChange{{Key: DestinationKey{Server: ftp, Addr: reuseClient, Port: ftpPort}, Destination: Destination{Weight: 1}}}
	for _, name := range []byte{11, 12} {
		addr := netip.AddrFrom4([4]byte{127, 0, 0, name})
		l, err := listenNamed(ctx, addr, name)
		if err != nil {
			return stop, err
		}
		listeners = append(listeners, l)
		p.servers[name] = DestinationKey{Server: reuseVIP, Addr: addr, Port: reusePort}
		rows = append(rows, DestinationChange{Key: p.servers[name], Destination: Destination{Weight: 1}})
	}
	roundRobin := Server{Scheduler: "rr"}
	errs := p.handle.WriteServers(ctx, []ServerChange{{Key: reuseVIP, Server: roundRobin}, {Key: ftp, Server: roundRobin}})
	return stop, errors.Join(append(errs, p.handle.WriteDestinations(ctx, rows)...)...)
}

// ask puts both questions under both modes.
func (p *reuseProbe) ask(ctx context.Context) (r Reuse, err error) {
	text, err := os.ReadFile(reuseSysctlPath("conn_reuse_mode"))
	if err == nil {
		r.Default, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	for mode, outcome := range []*ReuseOutcome{&r.Mode0, &r.Mode1} {
		if err == nil {
			err = setReuseSysctl("conn_reuse_mode", strconv.Itoa(mode))
		}
		if err == nil {
			outcome.Prompt, err = p.prompt(ctx)
		}
		if err == nil {
			outcome.LeavesDrained, err = p.leavesDrained(ctx)
		}
	}
	return r, err
}

// prompt connects twice from one port.
func (p *reuseProbe) prompt(ctx context.Context) (bool, error) {
	p.port++
	if _, err := p.first(ctx); err != nil {
		return false, err
	}
	again, err := p.connect(ctx)
	return again.answered && !again.lost, err
}

// leavesDrained connects, takes the destination that answered out of service, and
// connects again.
func (p *reuseProbe) leavesDrained(ctx context.Context) (bool, error) {
	p.port++
	old, err := p.first(ctx)
	if err != nil {
		return false, err
	}
	if err := p.weigh(ctx, old.name, 0); err != nil {
		return false, err
	}
	again, err := p.connect(ctx)
	if err != nil {
		return false, err
	}
	return again.answered && !again.lost && again.name != old.name, p.weigh(ctx, old.name, 1)
}

func (p *reuseProbe) weigh(ctx context.Context, name byte, weight uint16) error {
	return errors.Join(p.handle.WriteDestinations(ctx, []DestinationChange{
		{Op: Update, Key: p.servers[name], Destination: Destination{Weight: weight}},
	})...)
}

// first is a connection from a port that was not used before. If that does not
// pass, or is not tracked as it is on a node, nothing follows from the next one.
func (p *reuseProbe) first(ctx context.Context) (reply, error) {
	r, err := p.connect(ctx)
	if err != nil {
		return r, err
	}
	if !r.answered || r.lost || p.servers[r.name] == (DestinationKey{}) {
		return r, errors.New("a connection from a fresh source port was not answered at once")
	}
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	if err == nil && strings.TrimSpace(string(text)) == "0" {
		err = errors.New("connection tracking does not see the probe's connections")
	}
	return r, err
}

func (p *reuseProbe) connect(ctx context.Context) (reply, error) {
	from, to := netip.AddrPortFrom(reuseClient, p.port), netip.AddrPortFrom(reuseVIP.Addr, reuseVIP.Port)
	r, err := dialFrom(ctx, from, to)
	if err != nil {
		return r, fmt.Errorf("connect from %s to %s: %w", from, to, err)
	}
	return r, nil
}

// reuseSysctlPath is in the namespace of the thread that opens it.
func reuseSysctlPath(key string) string { return "/proc/sys/net/ipv4/vs/" + key }

func setReuseSysctl(key, value string) error {
	f, err := os.OpenFile(reuseSysctlPath(key), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}

func upLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}
