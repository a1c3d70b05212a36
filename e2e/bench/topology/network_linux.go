package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// Network is a node that has never seen a proxy, a pod and the backends. Its methods are safe for concurrent use.
type Network struct {
	Node, Pod, backends *Space
	asked               atomic.Uint32 // sources that were given out
	took                atomic.Int64  // the last question that was answered, in nanoseconds
	asking              chan func()   // to be called inside of the pod, by one of the askers
	opener              *opener

	stop    context.CancelFunc
	running sync.WaitGroup
}

// New builds a topology. The backends also answers on the ports given, where the API has a server among the endpoints.
func New(ctx context.Context, ports ...int) (*Network, error) {
	w := &Network{asking: make(chan func())}
	serving, stop := context.WithCancel(ctx)
	w.stop = stop
	for _, s := range []struct {
		name string
		at   **Space
	}{{"node", &w.Node}, {"pod", &w.Pod}, {"backends", &w.backends}} {
		made, err := newSpace(s.name)
		if err != nil {
			w.Close()
			return nil, err
		}
		*s.at = made
	}
	if err := w.build(ctx); err != nil {
		w.Close()
		return nil, err
	}
	var err error
	if w.opener, err = newOpener(w.Pod, w.backends); err != nil {
		w.Close()
		return nil, err
	}
	for _, port := range append([]int{BackendPort}, ports...) {
		if err := w.serve(serving, port); err != nil {
			w.Close()
			return nil, err
		}
	}
	for range askers {
		w.running.Go(func() { _ = w.Inside(w.ask) }) // entering a namespace that is there does not fail
	}
	// New links lose their first packets, which would come again after a second.
	if _, err := w.Until(ctx, netip.AddrPortFrom(Endpoint(0), BackendPort), netip.Addr{}, longPatience); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close ends what the network runs; its namespaces end with the last process in them.
func (w *Network) Close() {
	w.stop()
	close(w.asking)
	w.running.Wait()
	if w.opener != nil {
		w.opener.close()
	}
	for _, s := range []*Space{w.Node, w.Pod, w.backends} {
		if s != nil {
			s.Close()
		}
	}
}

// build makes links, addresses and routes. lo comes first: without it the kernel refuses destinations of IPVS with EINVAL.
func (w *Network) build(ctx context.Context) error {
	if err := errors.Join(wire(w.Node, "be0", w.backends, "eth0"), wire(w.Node, "pod0", w.Pod, "eth0")); err != nil {
		return err
	}
	if err := w.Node.Shell(ctx, `cd /proc/sys/net
for f in ipv4/conf/all/rp_filter ipv4/conf/default/rp_filter ipv4/conf/be0/rp_filter ipv4/conf/pod0/rp_filter; do echo 0 >$f; done
echo 0 >ipv4/icmp_ratelimit
echo 1 >ipv4/ip_forward`); err != nil {
		return err
	}
	return errors.Join(
		w.Node.IP(ctx, "link set lo up", "link set be0 up", "link set pod0 up", "addr add "+NodeAddr+"/24 dev be0", "addr add 10.244.0.254/32 dev pod0",
			"route add 10.244.0.9/32 dev pod0", "route add "+everySource+" via 10.244.0.9 dev pod0", "route add "+everyEndpoint+" via "+BackendsAddr, "route add "+everyService+" via "+BackendsAddr),
		w.Pod.IP(ctx, "link set lo up", "link set eth0 up", "addr add 10.244.0.9/32 dev eth0", "route add local "+everySource+" dev lo",
			"route add 10.244.0.254/32 dev eth0", "route add default via 10.244.0.254 dev eth0 onlink"),
		w.backends.IP(ctx, "link set lo up", "link set eth0 up", "addr add "+BackendsAddr+"/24 dev eth0", "route add local "+everyEndpoint+" dev lo", "route add local "+everyService+" dev lo",
			"route add default via "+NodeAddr),
	)
}

// ask answers questions of Until, on a thread of its own: making one for each would cost more than the question.
func (w *Network) ask() error {
	for question := range w.asking {
		question()
	}
	return nil
}

// serve answers on a port of every endpoint.
func (w *Network) serve(ctx context.Context, port int) error {
	var server *backend.Server
	err := w.backends.Do(func() (err error) {
		server, err = backend.Listen(backend.Config{Name: "anyone", TCP: fmt.Sprintf("0.0.0.0:%d", port)})
		return err
	})
	if err != nil {
		return err
	}
	w.running.Go(func() { _ = server.Serve(ctx) }) // an error shows as endpoints that do not answer
	return nil
}

// Listen opens a socket of the node's, for what others in this process serve there.
func (w *Network) Listen(address string) (l net.Listener, err error) {
	err = w.Node.Do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// sources is how many addresses the pod asks from.
const sources = 1<<15 - 2

// Source is an address that the pod has not asked from lately.
func (w *Network) Source() netip.Addr {
	i := w.asked.Add(1)%sources + 1
	return netip.AddrFrom4([4]byte{10, 244, 128 | byte(i>>8), byte(i)})
}
