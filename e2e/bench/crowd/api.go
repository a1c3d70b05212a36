package crowd

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

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/world"
	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// Crowd is the Services in an API server. Its methods are for concurrent use but Grow and Restore.
type Crowd struct {
	control   cluster.Control
	client    kubernetes.Interface
	server    string // host and port
	endpoints int    // of each member

	vips   []netip.AddrPort // of members, by number
	probes []netip.AddrPort

	mu      sync.Mutex
	spare   int             // the next endpoint that is added
	changed map[int]bool    // members that are not what they were
	came    map[string]bool // Services that came, with their slices of the same name
}

// firstSpare is the number of the first endpoint that nobody has at first; from lastSpare on it begins again, with those that nobody has any more.
const (
	firstSpare = 500_000
	lastSpare  = 1_000_000
)

// Probes is how many Services of one endpoint there are.
const Probes = 8

// Open starts an API server, or has the host of a guest do it, and writes nodes and probes. Each member will have so many endpoints.
func Open(ctx context.Context, endpoints int, log io.Writer) (*Crowd, error) {
	control, err := cluster.Open(ctx, cluster.Options{Log: log, Reached: []netip.Addr{netip.MustParseAddr(world.FarmAddr)}})
	if err != nil {
		return nil, fmt.Errorf("start an API server: %w", err)
	}
	c := &Crowd{control: control, endpoints: endpoints, spare: firstSpare, changed: map[int]bool{}, came: map[string]bool{}}
	if err := c.prepare(ctx); err != nil {
		_ = control.Close()
		return nil, err
	}
	return c, nil
}

func (c *Crowd) prepare(ctx context.Context) error {
	text, err := c.control.Kubeconfig(ctx, cluster.Admin)
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
	c.server = server.Host
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	for name, addr := range map[string]string{Node: world.NodeAddr, otherNode: world.FarmAddr} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}}
		if _, err := c.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make node %s: %w", name, err)
		}
	}
	for p := range Probes {
		vip, err := c.create(ctx, service(probeName(p)), slice(probeName(p), probeName(p), c.spares(1)...))
		if err != nil {
			return err
		}
		c.probes = append(c.probes, vip)
	}
	clear(c.came) // probes stay
	return nil
}

func probeName(p int) string { return fmt.Sprintf("probe-%d", p) }

// Close ends the API server.
func (c *Crowd) Close() error { return c.control.Close() }

// Server is where the API server listens, as this process reaches it.
func (c *Crowd) Server() string { return c.server }

// Port is that of the API server.
func (c *Crowd) Port() (int, error) {
	addr, err := netip.ParseAddrPort(c.server)
	return int(addr.Port()), err
}

// Kubeconfig lets a candidate do everything, through an address of its own node.
func (c *Crowd) Kubeconfig(ctx context.Context, near string) ([]byte, error) {
	text, err := c.control.Kubeconfig(ctx, cluster.Admin)
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
func (c *Crowd) Grow(ctx context.Context, n int) error {
	for first := len(c.vips); first < n; first += bulk {
		list := corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
		for i := first; i < min(first+bulk, n); i++ {
			s, slice := member(i, c.endpoints)
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
		if err := c.control.Create(ctx, string(text)); err != nil {
			return fmt.Errorf("make Services %d to %d: %w", first, first+bulk, err)
		}
	}
	return c.learn(ctx, n)
}

// writers is how many requests are under way at once.
const writers = 8

// learn asks for the addresses of n members, and gives load balancers theirs.
func (c *Crowd) learn(ctx context.Context, n int) error {
	all, err := c.client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	byName := map[string]*corev1.Service{}
	for i := range all.Items {
		byName[all.Items[i].Name] = &all.Items[i]
	}
	c.vips = make([]netip.AddrPort, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		s := byName[memberName(i)]
		if s == nil {
			return fmt.Errorf("list Services: %s is not there", memberName(i))
		}
		if c.vips[i], err = vip(s); err != nil {
			return err
		}
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.18." + strconv.Itoa(i>>8) + "." + strconv.Itoa(i&0xff)}}
			group.Go(func() error {
				_, err := c.client.CoreV1().Services(namespace).UpdateStatus(ctx, s, metav1.UpdateOptions{})
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
func (c *Crowd) VIP(i int) netip.AddrPort { return c.vips[i] }

// Probe is where a probe answers.
func (c *Crowd) Probe(p int) netip.AddrPort { return c.probes[p] }

// KubernetesVIP is where the API server's own Service is. A server that has just started writes it some moments after it is ready.
func (c *Crowd) KubernetesVIP(ctx context.Context) (netip.AddrPort, error) {
	for deadline := time.Now().Add(ownServiceWithin); ; time.Sleep(100 * time.Millisecond) {
		s, err := c.client.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
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

// spares are numbers of endpoints that nobody had, or not for long.
func (c *Crowd) spares(n int) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]int, n)
	for i := range out {
		out[i] = c.spare
		if c.spare++; c.spare == lastSpare {
			c.spare = firstSpare
		}
	}
	return out
}

// ChangeProbe gives a probe another endpoint, and returns it when the API server has answered.
func (c *Crowd) ChangeProbe(ctx context.Context, p int) (netip.Addr, error) {
	added := c.spares(1)
	return world.Endpoint(added[0]), c.update(ctx, slice(probeName(p), probeName(p), added...))
}

// ChangeMembers puts another endpoint into the place of one of a random member's, so many a second, until ctx ends or so many were changed, and
// returns how many. An API server that cannot follow slows it down. Whoever runs the API server makes the changes: in a guest they would cost
// half a processor, that of the candidates.
func (c *Crowd) ChangeMembers(ctx context.Context, random *rand.Rand, rate, most int) (int, error) {
	members, changes := make([]int, most), make([]cluster.Replacement, most)
	for k, spare := range c.spares(most) {
		members[k] = random.IntN(len(c.vips))
		changes[k] = cluster.Replacement{
			Namespace: namespace, Slice: sliceName(memberName(members[k])), Endpoint: random.IntN(c.endpoints), Address: world.Endpoint(spare).String(),
		}
	}
	err := c.control.Replace(ctx, changes, rate)
	counting, cancel := context.WithTimeout(context.WithoutCancel(ctx), countWithin)
	defer cancel()
	n, uncounted := c.control.Replaced(counting)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range members[:n] {
		c.changed[i] = true
	}
	return int(n), errors.Join(err, uncounted)
}

// countWithin is for the last changes, which are under way when the others are ended.
const countWithin = time.Minute

// AddService writes a Service and then its slice, as the control plane does, and returns where it is to answer when the API server has
// answered the second.
func (c *Crowd) AddService(ctx context.Context, name string) (netip.AddrPort, error) {
	return c.create(ctx, service(name), slice(name, name, c.spares(c.endpoints)...))
}

// create writes a Service and its slices; Restore takes them away again.
func (c *Crowd) create(ctx context.Context, s *corev1.Service, slices ...*discovery.EndpointSlice) (netip.AddrPort, error) {
	c.mu.Lock()
	c.came[s.Name] = true
	c.mu.Unlock()
	made, err := c.client.CoreV1().Services(namespace).Create(ctx, s, metav1.CreateOptions{})
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("make Service %s: %w", s.Name, err)
	}
	for _, one := range slices {
		if _, err := c.client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, one, metav1.CreateOptions{}); err != nil {
			return netip.AddrPort{}, fmt.Errorf("make slice %s: %w", one.Name, err)
		}
	}
	return vip(made)
}

func (c *Crowd) update(ctx context.Context, s *discovery.EndpointSlice) error {
	if _, err := c.client.DiscoveryV1().EndpointSlices(namespace).Update(ctx, s, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("change slice %s: %w", s.Name, err)
	}
	return nil
}

// Restore makes the crowd what it was at first.
func (c *Crowd) Restore(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range c.changed {
		group.Go(func() error {
			_, s := member(i, c.endpoints)
			return c.update(ctx, s)
		})
	}
	for name := range c.came {
		group.Go(func() error {
			if err := c.client.CoreV1().Services(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				return fmt.Errorf("remove Service %s: %w", name, err)
			}
			return c.client.DiscoveryV1().EndpointSlices(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: discovery.LabelServiceName + "=" + name})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	clear(c.changed)
	clear(c.came)
	return nil
}
