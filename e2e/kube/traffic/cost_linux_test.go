package traffic

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
)

// The number of Services that are probed to find out whether all are served, spread over all. Then
// the number of changes of an endpoint, the number of new Services, and the pause after an answer.
const (
	costProbes  = 100
	costChanges = 20
	costPause   = 300 * time.Millisecond
)

// How long an answer may take. iptables-nft keeps the chains of one input in a list that it
// searches for each line. kube-proxy, which passes all rules at once, is busy for ten minutes with
// 50,000 endpoints.
const (
	firstAnswer = 30 * time.Minute
	oneChange   = 3 * time.Minute
)

// costBench is a cluster, and what proxies cost there.
type costBench struct {
	*api
	services, endpoints int
	backend             string
	vips                []netip.AddrPort // addresses of the Services, by number
}

// candidate is one program with its settings.
type candidate struct {
	Name    string
	program string
	flags   []string
	settings
}

// settings are lines of kubeadm's file that are changed, by pairs.
type settings []string

// costCandidates are measured one after the other. A period of 0 in kube-proxy's file means the default, so the least there is stands for none.
func costCandidates() []candidate {
	ours, theirs := os.Getenv("KUBE_IPVS_BIN"), os.Getenv("KUBE_IPVS_KUBE_PROXY")
	return []candidate{
		{Name: "kube-ipvs", program: ours, flags: []string{"--proxy-mode=iptables"}},
		{Name: "kube-proxy", program: theirs},
		{Name: "kube-proxy, no pause", program: theirs, settings: settings{"  masqueradeBit: null\n  minSyncPeriod: 0s", "  masqueradeBit: null\n  minSyncPeriod: 1ms"}},
	}
}

// TestIPTablesCost measures kube-ipvs and kube-proxy in iptables mode: the cost of the first load of
// many Services, of a change of one endpoint, and of a new Service. Each has a node
// of its own. Values other than times are asserted, too.
func TestIPTablesCost(t *testing.T) {
	b := &costBench{backend: cmp.Or(os.Getenv("KUBE_IPVS_E2E_COST_BACKEND"), "nft")}
	if _, err := fmt.Sscanf(os.Getenv("KUBE_IPVS_E2E_COST"), "%dx%d", &b.services, &b.endpoints); err != nil {
		t.Skip("KUBE_IPVS_E2E_COST is not set, as in 5000x10: make bench WHAT=iptables sets it")
	}
	needKernel(t)
	b.api = openAPI(t, cluster.Options{})
	b.createNodes(t)
	b.populate(t)
	report := newCostReport(t, b)
	for _, c := range costCandidates() {
		if !t.Run(c.Name, func(t *testing.T) { report.add(b.measure(t, c)) }) {
			break // keeps the results of half an hour
		}
		report.keep(t)
	}
	if len(report.Results) < 2 {
		t.Fatal("there is nothing to compare")
	}
	report.print()
	report.check(t)
}

// populate writes the Services: of ten one has a NodePort, of twenty one a load balancer's address.
func (b *costBench) populate(t *testing.T) {
	t.Helper()
	start := time.Now()
	for first := 0; first < b.services; first += bulk {
		list := corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
		for i := first; i < min(first+bulk, b.services); i++ {
			service, slice := b.member(i)
			for _, o := range []any{service, slice} {
				raw, err := json.Marshal(o)
				must(t, err)
				list.Items = append(list.Items, runtime.RawExtension{Raw: raw})
			}
		}
		text, err := json.Marshal(list)
		must(t, err)
		must(t, b.Create(t.Context(), string(text)))
	}
	b.balance(t)
	all, err := b.client.CoreV1().Services(namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	b.vips = make([]netip.AddrPort, b.services)
	for _, s := range all.Items {
		if number, found := strings.CutPrefix(s.Name, "crowd-"); found {
			i, err := strconv.Atoi(number)
			must(t, err)
			b.vips[i] = vip(&s)
		}
	}
	costProgress("%d Services with %d endpoints each are in the API after %s", b.services, b.endpoints, time.Since(start).Round(time.Second))
}

// member is one of the Services, and its slice.
func (b *costBench) member(i int) (*corev1.Service, *discovery.EndpointSlice) {
	name := fmt.Sprintf("crowd-%d", i)
	s, slice := service(name), slicesOf(name)[0]
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	slice.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
	switch {
	case i%10 == 3:
		s.Spec.Type = corev1.ServiceTypeNodePort
	case i%20 == 7:
		loadBalancer(s)
	}
	for e := range b.endpoints {
		slice.Endpoints = append(slice.Endpoints, podEndpoint(i*b.endpoints+e))
	}
	return s, slice
}

// run is a candidate on its node.
type run struct {
	*costBench
	*proxy
	name  string
	tools *counter
	spare int // endpoints that were added, all of them new
}

// measure gives a candidate a node and all that happens there.
func (b *costBench) measure(t *testing.T, c candidate) *result {
	t.Helper()
	w := newCostWorld(t)
	b.connect(t, w)
	r := &run{costBench: b, name: c.Name, tools: newCounter(t, b.backend)}
	r.proxy = newProgram(t, w, c.program, t.TempDir(), r.commandLine(t, c)...)
	t.Cleanup(func() {
		r.keepOutput(t, "cost-"+b.backend+"-"+strings.NewReplacer(" ", "-", ",", "").Replace(c.Name)+".log")
	})
	out := &result{Candidate: c.Name}
	out.FirstLoad = r.firstLoad(t)
	r.wantAll(t)
	r.tools.settle(t)
	out.EndpointChange = r.phase(t, "change of one endpoint", r.changeEndpoint)
	out.NewService = r.phase(t, "new Service", r.addService)
	r.forget(t)
	return out
}

// commandLine is the same for both programs, but for what the candidate has of its own.
func (r *run) commandLine(t *testing.T, c candidate) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.conf")
	changes := append(settings{"/var/lib/kube-proxy/kubeconfig.conf", r.kubeconfigFor(t, cluster.Admin), "\nmode: \"\"", "\nmode: iptables",
		"maxPerCore: null", "maxPerCore: 0"}, c.settings...)
	must(t, os.WriteFile(path, []byte(kubeadmFile(t, "config.conf", changes...)), 0o644))
	return append([]string{"--config", path, "--hostname-override", thisNode}, c.flags...)
}

// firstLoad starts the program on a node without rules, and waits until the last Service answers.
func (r *run) firstLoad(t *testing.T) cost {
	t.Helper()
	_, err := os.ReadFile(r.program) // from the disk once, for all
	must(t, err)
	start := time.Now()
	r.launch(t, r.tools.path())
	var last time.Time
	for n := range min(costProbes, r.services) {
		to := r.vips[(n+1)*r.services/min(costProbes, r.services)-1]
		last, err = r.until(to, netip.Addr{}, firstAnswer)
		must(t, err)
	}
	costProgress("%s: the last Service answers after %s", r.name, last.Sub(start).Round(time.Millisecond))
	r.tools.settle(t)
	return r.sum(t, "first load", []time.Duration{last.Sub(start)}, 0)
}

// wantAll asks each Service once.
func (r *run) wantAll(t *testing.T) {
	t.Helper()
	for i, to := range r.vips {
		if _, err := r.until(to, netip.Addr{}, oneChange); err != nil {
			t.Fatalf("Service %d is not carried: %v", i, err)
		}
	}
}

// phase does the same thing several times, and sums up when the tools are quiet.
func (r *run) phase(t *testing.T, what string, once func(context.Context, int) (time.Duration, error)) cost {
	t.Helper()
	used := r.cpu(t)
	took := make([]time.Duration, costChanges)
	for n := range took {
		var err error
		took[n], err = once(t.Context(), n)
		must(t, err)
		time.Sleep(costPause)
	}
	r.tools.settle(t)
	return r.sum(t, what, took, used)
}

// sum is what all of a phase took.
func (r *run) sum(t *testing.T, what string, took []time.Duration, before time.Duration) cost {
	t.Helper()
	out := newCost(took, r.cpu(t)-before, r.tools.take(t))
	costProgress("%s: %s: %s", r.name, what, out)
	return out
}

// changeEndpoint puts a new endpoint into the place of an old one, and waits until it answers. The
// time starts when the API server has acknowledged the write, so that it does not contain the
// latency of etcd's disk.
func (r *run) changeEndpoint(ctx context.Context, n int) (time.Duration, error) {
	i := r.services * n / costChanges
	_, slice := r.member(i)
	r.spare++
	added := podEndpoint(r.services*r.endpoints + r.spare)
	slice.Endpoints[n%len(slice.Endpoints)] = added
	if _, err := r.api.client.DiscoveryV1().EndpointSlices(namespace).Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
		return 0, err
	}
	start := time.Now()
	at, err := r.until(r.vips[i], netip.MustParseAddr(added.Addresses[0]), oneChange)
	return at.Sub(start), err
}

// addService writes a Service, then its slice, as the control plane does, and waits until it answers. The time begins as that of
// changeEndpoint does.
func (r *run) addService(ctx context.Context, n int) (time.Duration, error) {
	s, slice := r.newcomer(n)
	made, err := r.api.client.CoreV1().Services(namespace).Create(ctx, s, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if _, err := r.api.client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	start := time.Now()
	at, err := r.until(vip(made), netip.Addr{}, oneChange)
	return at.Sub(start), err
}

// newcomer is a Service that was not there at first.
func (r *run) newcomer(n int) (*corev1.Service, *discovery.EndpointSlice) {
	name := fmt.Sprintf("newcomer-%d", n)
	s, slice := service(name), slicesOf(name)[0]
	for range r.endpoints {
		r.spare++
		slice.Endpoints = append(slice.Endpoints, podEndpoint(r.services*r.endpoints+r.spare))
	}
	return s, slice
}

// forget makes the cluster what it was, for the next.
func (r *run) forget(t *testing.T) {
	t.Helper()
	r.kill(t)
	for n := range costChanges {
		_, slice := r.member(r.services * n / costChanges)
		_, err := r.api.client.DiscoveryV1().EndpointSlices(namespace).Update(t.Context(), slice, metav1.UpdateOptions{})
		must(t, err)
		s, slice := r.newcomer(n)
		must(t, r.api.client.CoreV1().Services(namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
		must(t, r.api.client.DiscoveryV1().EndpointSlices(namespace).Delete(t.Context(), slice.Name, metav1.DeleteOptions{}))
	}
}

// cpu is what the program and all that it launched, and waited for, have used.
func (r *run) cpu(t *testing.T) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.process.Process.Pid))
	must(t, err)
	_, after, _ := strings.Cut(string(stat), ") ")
	ticks := 0
	for _, field := range strings.Fields(after)[11:15] { // utime, stime, cutime, cstime of proc_pid_stat(5)
		n, err := strconv.Atoi(field)
		must(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// costProgress prints a line while the measurement runs.
func costProgress(format string, args ...any) {
	fmt.Printf("cost: "+format+"\n", args...)
}

// worst and middle of times.
func spread(took []time.Duration) (middle, worst time.Duration) {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[len(sorted)/2], sorted[len(sorted)-1]
}
