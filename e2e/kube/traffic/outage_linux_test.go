package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// watchBound is the agent's --readyz-watch-bound in these tests: a little more than the minute in which a healthy server sends
// that nothing has changed.
const watchBound = 70 * time.Second

// outageLasts is how long the API server is away. Short tests do not wait until readiness shows it.
func outageLasts(t *testing.T) time.Duration {
	t.Helper()
	if testing.Short() {
		return 20 * time.Second
	}
	asked := os.Getenv("KUBE_IPVS_E2E_OUTAGE")
	if asked == "" {
		return watchBound + 15*time.Second
	}
	d, err := time.ParseDuration(asked)
	must(t, err)
	return max(d, watchBound+15*time.Second)
}

// stage is the common setup of tests in which the API server goes away: a Service that stays, with
// traffic, one that is deleted meanwhile, and a running agent.
type stage struct {
	world       *world
	api         *api
	proxy       *proxy
	web, doomed *corev1.Service
	traffic     streams
	before      []string // the kernel
	status      agent.Status
}

func newStage(t *testing.T, flags ...string) *stage {
	t.Helper()
	w := newWorld(t)
	a := newAPI(t, w, cluster.Options{})
	a.createNodes(t)
	s := &stage{world: w, api: a, proxy: newAgent(t, w, a.kubeconfigFor(t, cluster.Admin), flags...)}
	s.web = a.create(t, service("web"), backends[0], backends[2])
	s.doomed = a.create(t, service("doomed"), backends[2])
	for i := range 20 {
		a.create(t, service(fmt.Sprintf("other-%d", i)), backends[3])
	}
	s.status = s.proxy.start(t)
	s.traffic = w.traffic(t, vip(s.web))
	s.traffic.more(t, 5)
	s.before = w.kernel(t)
	return s
}

// untilOver waits for the end of an outage and asks all the while: both Services answer, and nothing in the kernel changes.
func (s *stage) untilOver(t *testing.T, end time.Time) {
	t.Helper()
	for time.Now().Before(end) {
		s.traffic.more(t, 5)
		wantAnswers(t, "deleted during the outage", s.world.pod, vip(s.doomed), 1)
	}
	s.proxy.answers(t, "/livez", 200, settleTimeout)
	same(t, "kernel during the outage", s.before, s.world.kernel(t))
}

// wantSilenceKnown requires the agent to say that it hears nothing, to people and not yet to load balancers.
func (s *stage) wantSilenceKnown(t *testing.T) {
	t.Helper()
	s.proxy.answers(t, "/healthz", 200, settleTimeout)
	if testing.Short() {
		t.Log("readiness is not looked at: the outage is shorter than its bound")
		return
	}
	s.proxy.answers(t, "/readyz", 503, 10*time.Second)
	reasons := s.proxy.failing(t)
	for _, want := range []string{"sent nothing about services for", "sent nothing about endpointslices for"} {
		if !strings.Contains(reasons, want) {
			t.Errorf("the agent does not say %q: %s", want, reasons)
		}
	}
}

// converges requires the deletion in the kernel, what is created now to answer, and nothing else to change.
func (s *stage) converges(t *testing.T) {
	t.Helper()
	start := time.Now()
	wantGone(t, s.world, vip(s.doomed))
	figure(t, "API server back, deletion in the kernel after", time.Since(start))
	same(t, "kernel after the outage", without(s.before, s.doomed), s.world.kernel(t))
	after, wrote := s.proxy.status(t), map[string]uint64{}
	for table, n := range after.Written {
		if n > s.status.Written[table] {
			wrote[table] = n - s.status.Written[table]
		}
	}
	if diff := cmp.Diff(deletion, wrote); diff != "" {
		t.Errorf("rows written since the outage began (-want +got):\n%s", diff)
	}
	s.proxy.answers(t, "/readyz", 200, settleTimeout)
	s.traffic.more(t, 5)
	s.traffic.check(t)
	created := s.api.create(t, service("created-later"), backends[3])
	answersSoon(t, s.world, created)
}

// deletion are the rows that the deletion of one Service without local endpoints writes: a virtual server takes its destinations along,
// and two sets know its address.
var deletion = map[string]uint64{"members": 2, "servers": 1, "addresses": 1}

// wantGone waits until the kernel has no virtual server there, and then wants no answer.
func wantGone(t *testing.T, w *world, at netip.AddrPort) {
	t.Helper()
	poll(t, "the deletion of "+at.String(), settleTimeout, func() error {
		if out := w.node.shell(t, "ipvsadm -Sn"); strings.Contains(out, at.String()) {
			return fmt.Errorf("the kernel has it still")
		}
		return nil
	})
	wantNoAnswer(t, "a Service that was deleted to fall silent", w.pod, at)
}

func answersSoon(t *testing.T, w *world, s *corev1.Service) {
	t.Helper()
	start := time.Now()
	err := w.pod.do(func() error {
		_, err := untilAnswer(vip(s), start.Add(settleTimeout))
		return err
	})
	if err != nil {
		t.Errorf("Service %s, created after the outage: %v", s.Name, err)
	}
	figure(t, "one more Service answers after", time.Since(start))
}

// without leaves out the lines about one Service.
func without(lines []string, s *corev1.Service) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(l string) bool {
		return strings.Contains(l, s.Spec.ClusterIP+":") || strings.Contains(l, s.Spec.ClusterIP+",") || strings.HasSuffix(l, " "+s.Spec.ClusterIP+"/32") || strings.HasSuffix(l, " "+s.Spec.ClusterIP)
	})
}

// TestAPIOutage: while the API server is away, connections live and new ones work, and nothing is deleted.
func TestAPIOutage(t *testing.T) {
	t.Parallel()
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, "--readyz-watch-bound", watchBound.String())
		end := time.Now().Add(outageLasts(t))
		must(t, s.api.KillAPIServer(t.Context()))
		must(t, s.api.DeleteStored(t.Context(), "services/specs", namespace, s.doomed.Name))
		s.untilOver(t, end)
		s.wantSilenceKnown(t)
		must(t, s.api.StartAPIServer(t.Context()))
		s.converges(t)
	})
	// A partition is worse: no error tells that the server is away, until pings find it out after 45 s.
	t.Run("partition", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, "--readyz-watch-bound", watchBound.String())
		end := time.Now().Add(min(outageLasts(t), watchBound+15*time.Second))
		s.api.relay.partition()
		must(t, s.api.client.CoreV1().Services(namespace).Delete(t.Context(), s.doomed.Name, metav1.DeleteOptions{}))
		s.untilOver(t, end)
		s.wantSilenceKnown(t)
		s.api.relay.heal()
		s.converges(t)
	})
}

// TestCompaction: the server has dropped the version that the agent saw last, so everything is
// listed again. Nothing is lost meanwhile, and no row is written but the one of the change.
func TestCompaction(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	seen, err := s.api.client.CoreV1().Services(namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	must(t, s.api.KillAPIServer(t.Context()))
	must(t, s.api.DeleteStored(t.Context(), "services/specs", namespace, s.doomed.Name))
	_, err = s.api.Compact(t.Context())
	must(t, err)
	must(t, s.api.StartAPIServer(t.Context()))
	wantForgotten(t, s.api, seen.ResourceVersion)
	s.converges(t)
}

// wantForgotten requires 410 for a watch from a version, as the agent gets it.
func wantForgotten(t *testing.T, a *api, version string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleTimeout)
	defer cancel()
	w, err := a.client.CoreV1().Services(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	must(t, err)
	defer w.Stop()
	event := <-w.ResultChan()
	if status, ok := event.Object.(*metav1.Status); !ok || status.Code != 410 {
		t.Errorf("a watch from version %s, before the compaction, gives %v, want 410 Gone", version, event)
	}
}

// TestStartWhileAPIIsDown: an agent that starts then has a kernel full of rows of the one before, and may delete none.
func TestStartWhileAPIIsDown(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.proxy.kill(t)
	must(t, s.api.KillAPIServer(t.Context()))
	must(t, s.api.DeleteStored(t.Context(), "services/specs", namespace, s.doomed.Name))
	s.proxy.launch(t)
	status := s.proxy.settle(t, "tell its status", settleTimeout, func(agent.Status) bool { return true })
	if status.Synced || status.Ready || len(status.Written) > 0 {
		t.Errorf("without an API server: %+v, want neither synced nor ready, and nothing written", status)
	}
	s.proxy.answers(t, "/readyz", 503, settleTimeout)
	poll(t, "the agent to say what it misses and why", settleTimeout, func() error {
		reasons := s.proxy.failing(t)
		if !strings.Contains(reasons, "source kube has not delivered everything yet") || !strings.Contains(reasons, "the API server") {
			return errors.New(reasons)
		}
		return nil
	})
	s.untilOver(t, time.Now().Add(20*time.Second))
	must(t, s.api.StartAPIServer(t.Context()))
	start := time.Now()
	s.status = agent.Status{} // of the process that is gone
	s.proxy.settle(t, "be ready", settleTimeout, func(s agent.Status) bool { return s.Ready && s.Failures == 0 })
	figure(t, "API server back, ready after", time.Since(start))
	s.converges(t)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
