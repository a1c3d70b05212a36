package apiload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/topology"
	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// Load is the Services in an API server. Its methods except Grow and Restore are safe for concurrent use.
type Load struct {
	control   cluster.Control
	client    kubernetes.Interface
	server    string // host and port
	endpoints int    // number of endpoints of each member

	vips   []netip.AddrPort // addresses of members, by number
	probes []netip.AddrPort

	mu      sync.Mutex
	spare   int             // the next endpoint that is added
	changed map[int]bool    // members that are not what they were
	came    map[string]bool // Services that came, with their slices of the same name
}

// firstSpare is the number of the first endpoint that no Service has at first. Numbers wrap around at lastSpare, to endpoints that no Service
// has any more.
const (
	firstSpare = 500_000
	lastSpare  = 1_000_000
)

// Probes is how many Services of one endpoint there are.
const Probes = 8

// Open starts an API server, or has the host of a guest do it, and writes nodes and probes. Each member will have so many endpoints.
func Open(ctx context.Context, endpoints int, log io.Writer) (*Load, error) {
	control, err := cluster.Open(ctx, cluster.Options{Log: log, Reached: []netip.Addr{netip.MustParseAddr(topology.BackendsAddr)}})
	if err != nil {
		return nil, fmt.Errorf("start an API server: %w", err)
	}
	l := &Load{control: control, endpoints: endpoints, spare: firstSpare, changed: map[int]bool{}, came: map[string]bool{}}
	if err := l.prepare(ctx); err != nil {
		_ = control.Close()
		return nil, err
	}
	return l, nil
}

func (l *Load) prepare(ctx context.Context) error {
	text, err := l.control.Kubeconfig(ctx, cluster.Admin)
	if err != nil {
		return err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
	l.server = server.Host
	if l.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	for name, addr := range map[string]string{Node: topology.NodeAddr, otherNode: topology.BackendsAddr} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}}
		if _, err := l.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make node %s: %w", name, err)
		}
	}
	for p := range Probes {
		vip, err := l.create(ctx, service(probeName(p)), slice(probeName(p), probeName(p), l.spares(1)...))
		if err != nil {
			return err
		}
		l.probes = append(l.probes, vip)
	}
	clear(l.came) // probes stay
	return nil
}

func probeName(p int) string { return fmt.Sprintf("probe-%d", p) }

// Close ends the API server.
func (l *Load) Close() error { return l.control.Close() }

// Server is where the API server listens, as this process reaches it.
func (l *Load) Server() string { return l.server }

// Port is the port of the API server.
func (l *Load) Port() (int, error) {
	addr, err := netip.ParseAddrPort(l.server)
	return int(addr.Port()), err
}

// Kubeconfig lets a candidate do everything, through an address of its own node.
func (l *Load) Kubeconfig(ctx context.Context, near string) ([]byte, error) {
	text, err := l.control.Kubeconfig(ctx, cluster.Admin)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	for _, one := range config.Clusters {
		one.Server = "https://" + near
	}
	return clientcmd.Write(*config)
}

// bulk is how many members are written at once.
const bulk = 250

// Grow makes members until there are n.
func (l *Load) Grow(ctx context.Context, n int) error {
	for first := len(l.vips); first < n; first += bulk {
		list := corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
		for i := first; i < min(first+bulk, n); i++ {
			s, slice := member(i, l.endpoints)
			for _, o := range []any{s, slice} {
				raw, err := json.Marshal(o)
				if err != nil {
					return err
				}
				list.Items = append(list.Items, runtime.RawExtension{Raw: raw})
			}
		}
		text, err := json.Marshal(list)
		if err != nil {
			return err
		}
		if err := l.control.Create(ctx, string(text)); err != nil {
			return fmt.Errorf("make Services %d to %d: %w", first, first+bulk, err)
		}
	}
	return l.learn(ctx, n)
}

// writers is how many requests are under way at once.
const writers = 8

// learn asks for the addresses of n members, and gives load balancers theirs.
func (l *Load) learn(ctx context.Context, n int) error {
	all, err := l.client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	byName := map[string]*corev1.Service{}
	for i := range all.Items {
		byName[all.Items[i].Name] = &all.Items[i]
	}
	l.vips = make([]netip.AddrPort, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		s := byName[memberName(i)]
		if s == nil {
			return fmt.Errorf("list Services: %s is not there", memberName(i))
		}
		if l.vips[i], err = vip(s); err != nil {
			return err
		}
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.18." + strconv.Itoa(i>>8) + "." + strconv.Itoa(i&0xff)}}
			group.Go(func() error {
				_, err := l.client.CoreV1().Services(namespace).UpdateStatus(ctx, s, metav1.UpdateOptions{})
				return err
			})
		}
	}
	return group.Wait()
}

func vip(s *corev1.Service) (netip.AddrPort, error) {
	addr, err := netip.ParseAddr(s.Spec.ClusterIP)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address of Service %s: %w", s.Name, err)
	}
	return netip.AddrPortFrom(addr, uint16(s.Spec.Ports[0].Port)), nil
}

// VIP is where a member answers.
func (l *Load) VIP(i int) netip.AddrPort { return l.vips[i] }

// Probe is where a probe answers.
func (l *Load) Probe(p int) netip.AddrPort { return l.probes[p] }

// KubernetesVIP is where the API server's own Service is. A server that has just started writes it some moments after it is ready.
func (l *Load) KubernetesVIP(ctx context.Context) (netip.AddrPort, error) {
	for deadline := time.Now().Add(ownServiceWithin); ; time.Sleep(100 * time.Millisecond) {
		s, err := l.client.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		switch {
		case err == nil:
			return vip(s)
		case !apierrors.IsNotFound(err) || time.Now().After(deadline):
			return netip.AddrPort{}, fmt.Errorf("ask for Service kubernetes: %w", err)
		}
	}
}

// ownServiceWithin bounds how long a server takes to write its own Service.
const ownServiceWithin = 20 * time.Second

// spares are numbers of endpoints that no Service had recently.
func (l *Load) spares(n int) []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]int, n)
	for i := range out {
		out[i] = l.spare
		if l.spare++; l.spare == lastSpare {
			l.spare = firstSpare
		}
	}
	return out
}

// ChangeProbe gives a probe another endpoint, and returns it when the API server has answered.
func (l *Load) ChangeProbe(ctx context.Context, p int) (netip.Addr, error) {
	added := l.spares(1)
	return topology.Endpoint(added[0]), l.update(ctx, slice(probeName(p), probeName(p), added...))
}

// ChangeMembers puts another endpoint into the place of one of a random member's, so many a second, until ctx ends or so many were changed, and
// returns how many. A slow API server slows it down. The process that runs the API server makes the changes: in a guest they would cost half
// a CPU, which belongs to the candidates.
func (l *Load) ChangeMembers(ctx context.Context, random *rand.Rand, rate, most int) (int, error) {
	members, changes := make([]int, most), make([]cluster.Replacement, most)
	for k, spare := range l.spares(most) {
		members[k] = random.IntN(len(l.vips))
		changes[k] = cluster.Replacement{
			Namespace: namespace, Slice: sliceName(memberName(members[k])), Endpoint: random.IntN(l.endpoints), Address: topology.Endpoint(spare).String(),
		}
	}
	err := l.control.Replace(ctx, changes, rate)
	counting, cancel := context.WithTimeout(context.WithoutCancel(ctx), countWithin)
	defer cancel()
	n, uncounted := l.control.Replaced(counting)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range members[:n] {
		l.changed[i] = true
	}
	return int(n), errors.Join(err, uncounted)
}

// countWithin is for the last changes, which are under way when the others are ended.
const countWithin = time.Minute

// AddService writes a Service and then its slice, as the control plane does, and returns where it is to answer when the API server has
// answered the second.
func (l *Load) AddService(ctx context.Context, name string) (netip.AddrPort, error) {
	return l.create(ctx, service(name), slice(name, name, l.spares(l.endpoints)...))
}

// create writes a Service and its slices; Restore takes them away again.
func (l *Load) create(ctx context.Context, s *corev1.Service, slices ...*discovery.EndpointSlice) (netip.AddrPort, error) {
	l.mu.Lock()
	l.came[s.Name] = true
	l.mu.Unlock()
	made, err := l.client.CoreV1().Services(namespace).Create(ctx, s, metav1.CreateOptions{})
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("make Service %s: %w", s.Name, err)
	}
	for _, one := range slices {
		if _, err := l.client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, one, metav1.CreateOptions{}); err != nil {
			return netip.AddrPort{}, fmt.Errorf("make slice %s: %w", one.Name, err)
		}
	}
	return vip(made)
}

func (l *Load) update(ctx context.Context, s *discovery.EndpointSlice) error {
	if _, err := l.client.DiscoveryV1().EndpointSlices(namespace).Update(ctx, s, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("change slice %s: %w", s.Name, err)
	}
	return nil
}

// Restore undoes all changes and removes all added Services.
func (l *Load) Restore(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range l.changed {
		group.Go(func() error {
			_, s := member(i, l.endpoints)
			return l.update(ctx, s)
		})
	}
	for name := range l.came {
		group.Go(func() error {
			if err := l.client.CoreV1().Services(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				return fmt.Errorf("remove Service %s: %w", name, err)
			}
			return l.client.DiscoveryV1().EndpointSlices(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: discovery.LabelServiceName + "=" + name})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	clear(l.changed)
	clear(l.came)
	return nil
}
