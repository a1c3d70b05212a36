package traffic

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/kube-ipvs/kube-ipvs/e2e/kube/cluster"
	"github.com/kube-ipvs/kube-ipvs/internal/agent"
)

// many is how many Services there are in the test of many; a tenth of them has both families.
const many = 1000

// TestThousandServices creates them while the agent runs and asks each one.
func TestThousandServices(t *testing.T) {
	w := newWorld(t)
	a := newAPI(t, w, cluster.Options{})
	a.createNodes(t)
	p := newAgent(t, w, a.kubeconfigFor(t, cluster.Admin))
	first := p.start(t)
	start := time.Now()
	made := createMany(t, a)
	figure(t, fmt.Sprintf("%d Services and slices created after", many), time.Since(start))
	answers := answerAll(t, w, made)
	figure(t, fmt.Sprintf("%d virtual servers answer after", answers), time.Since(start))
	s := p.settle(t, "have written everything", settleTimeout, func(s agent.Status) bool { return s.Failures == 0 && s.Services >= many })
	figure(t, "cycles that wrote", s.Cycles-first.Cycles)
	kernel := w.kernel(t)
	figure(t, "virtual servers, destinations", fmt.Sprint(rows(kernel, "ipvs -A"), ", ", rows(kernel, "ipvs -a")))
	if got, want := rows(kernel, "ipvs -a"), answers; got < want {
		t.Errorf("%d destinations in the kernel, want %d at least", got, want)
	}
}

// createMany creates the Services from several clients at once, as a busy cluster does.
func createMany(t *testing.T, a *api) []*corev1.Service {
	t.Helper()
	made := make([]*corev1.Service, many)
	var group errgroup.Group
	group.SetLimit(8)
	for i := range made {
		group.Go(func() (err error) {
			s := service(fmt.Sprintf("web-%d", i))
			if i%10 == 0 {
				dualStack(s)
			}
			made[i], err = a.tryCreate(t, s, backends[i%len(backends)])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return made
}

// answerAll asks each address of each Service until it answers, and wants the right backend. It returns how many there are.
func answerAll(t *testing.T, w *world, made []*corev1.Service) int {
	t.Helper()
	answers, deadline := 0, time.Now().Add(settleTimeout)
	err := w.pod.do(func() error {
		for i, s := range made {
			for _, ip := range s.Spec.ClusterIPs {
				name, err := untilAnswer(netip.AddrPortFrom(netip.MustParseAddr(ip), 80), deadline)
				if err != nil {
					return fmt.Errorf("Service %s: %w", s.Name, err)
				}
				if want := backends[i%len(backends)].name; name != want {
					t.Errorf("Service %s at %s is answered by %s, want %s", s.Name, ip, name, want)
				}
				answers++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

func untilAnswer(to netip.AddrPort, deadline time.Time) (string, error) {
	for {
		reply, err := ask(3*time.Second, to) // packets to addresses that are not in the kernel yet are swallowed
		if err == nil || time.Now().After(deadline) {
			return reply.Name, err
		}
		time.Sleep(pace)
	}
}
