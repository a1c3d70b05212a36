package traffic

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// bulkTimeout bounds what tens of thousands of objects take under emulation.
const bulkTimeout = 10 * time.Minute

// TestMemory is a measurement: the memory of the agent for so many Services with so many endpoints each, from an API server. The
// heap profile goes to KUBE_IPVS_OUT.
func TestMemory(t *testing.T) {
	var services, endpoints int
	if _, err := fmt.Sscanf(os.Getenv("KUBE_IPVS_E2E_MEMORY"), "%dx%d", &services, &endpoints); err != nil {
		t.Skip("KUBE_IPVS_E2E_MEMORY is not set, as in 10000x10: make bench WHAT=memory sets it")
	}
	w := newWorld(t)
	a := newAPI(t, w, cluster.Options{})
	a.createNodes(t)
	p := newAgent(t, w, a.kubeconfigFor(t, cluster.Admin), "--profiling")
	p.start(t)
	p.figures(t, "following, no Services: ")
	start := time.Now()
	for first := 0; first < services; first += bulk {
		must(t, a.Create(t.Context(), crowd(t, first, min(bulk, services-first), endpoints)))
	}
	figure(t, "objects created after", time.Since(start))
	all := func(s agent.Status) bool {
		return s.Ready && s.Failures == 0 && s.Services >= services && wrote(s, services*endpoints)
	}
	p.settle(t, "have all of them", bulkTimeout, all)
	figure(t, "in the kernel after", time.Since(start))
	p.figures(t, "watched them come: ")
	p.kill(t)
	start = time.Now()
	p.launch(t)
	p.settle(t, "have all of them again", bulkTimeout, func(s agent.Status) bool { return s.Ready && s.Failures == 0 && s.Services >= services })
	figure(t, "restarted, ready after", time.Since(start))
	p.figures(t, "restarted, listed them: ")
}

// wrote reports whether that many destinations were added.
func wrote(s agent.Status, destinations int) bool {
	return s.Written["destinations"] >= uint64(destinations)
}

// bulk is how many Services go to the host at a time.
const bulk = 500

// crowd is a List of Services, with a slice each that has everything that the control plane writes for pods.
func crowd(t *testing.T, first, services, endpoints int) string {
	t.Helper()
	list := corev1.List{}
	list.APIVersion, list.Kind = "v1", "List"
	for i := first; i < first+services; i++ {
		name := fmt.Sprintf("crowd-%d", i)
		s, slice := service(name), slicesOf(name)[0]
		s.APIVersion, s.Kind = "v1", "Service"
		slice.APIVersion, slice.Kind = "discovery.k8s.io/v1", "EndpointSlice"
		for e := range endpoints {
			slice.Endpoints = append(slice.Endpoints, podEndpoint(i*endpoints+e))
		}
		for _, o := range []any{s, slice} {
			raw, err := json.Marshal(o)
			must(t, err)
			list.Items = append(list.Items, runtime.RawExtension{Raw: raw})
		}
	}
	text, err := json.Marshal(list)
	must(t, err)
	return string(text)
}

// podEndpoint is a pod somewhere in a cluster of 1,000 nodes and three zones.
func podEndpoint(number int) discovery.Endpoint {
	e := endpoint(server{node: fmt.Sprintf("node-%d.example.internal", number%1000), v4: fmt.Sprintf("10.%d.%d.%d", 128+number>>16, number>>8&255, number&255)}, discovery.AddressTypeIPv4)
	e.Zone = ptr.To(fmt.Sprintf("zone-%d", number%3))
	e.Conditions.Serving, e.Conditions.Terminating = ptr.To(true), ptr.To(false)
	e.TargetRef = &corev1.ObjectReference{
		Kind: "Pod", Namespace: namespace, Name: fmt.Sprintf("crowd-7d9c5b6f4-%05d", number), UID: types.UID(fmt.Sprintf("5e1f0c7a-0000-4000-8000-%012d", number)),
	}
	return e
}

// figures prints the memory of the agent: the count of the kernel, and the live heap after a collection.
func (p *proxy) figures(t *testing.T, when string) {
	t.Helper()
	heap, err := p.get(metricsPort, "/debug/pprof/heap?gc=1")
	must(t, err)
	if dir := os.Getenv("KUBE_IPVS_OUT"); dir != "" && heap.code == 200 {
		must(t, os.WriteFile(filepath.Join(dir, "memory.heap"), []byte(heap.body), 0o644))
	}
	metrics, err := p.get(metricsPort, "/metrics")
	must(t, err)
	figure(t, when+"live heap", mebibytes(t, metrics.body, `(?m)^go_memstats_heap_alloc_bytes (\S+)$`, 1))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.process.Process.Pid))
	must(t, err)
	figure(t, when+"RSS", mebibytes(t, string(status), `(?m)^VmRSS:\s+(\d+) kB$`, 1<<10))
	figure(t, when+"RSS at its highest", mebibytes(t, string(status), `(?m)^VmHWM:\s+(\d+) kB$`, 1<<10))
}

func mebibytes(t *testing.T, text, pattern string, unit float64) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("nothing matches %s in\n%.2000s", pattern, text)
	}
	number, err := strconv.ParseFloat(found[1], 64)
	must(t, err)
	return fmt.Sprintf("%8.1f MiB", number*unit/(1<<20))
}
