package packet

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
)

// endingPods makes network namespaces with a virtual server come and go.
const endingPods = `ip netns del ending 2>/dev/null; while ip netns add ending && ip netns exec ending ipvsadm -A -t 192.0.2.1:80 -s rr; do ip netns del ending; done`

// TestSchedulerModulesLoadBesideEndingPods: a Service asks for a scheduler whose module is not loaded, while pods end. A kernel that loads
// it on use keeps the lock of IPVS until the namespaces of pods have ended, which wait for that lock. An agent that may load modules
// loads it before, and one in a pod does not ask for it.
func TestSchedulerModulesLoadBesideEndingPods(t *testing.T) {
	needKernel(t)
	if _, err := os.Stat("/proc/sys/net/ipv4/vs/lblc_expiration"); err == nil {
		t.Skip("this kernel has lblc already: the stage contracts of make test removes the modules first")
	}
	for _, tt := range []struct {
		name, scheduler string
		contained       bool
	}{{"in a pod", "rr", true}, {"on a node", "lblc", false}} {
		t.Run(tt.name, func(t *testing.T) {
			w := buildWorld(t)
			n := newAgent(t, w.node, "--cluster-cidr", clusters, "--oom-score-adj", "0", "--on-missing-ipvs", "fail")
			args := append([]string{program()}, n.flags...)
			if tt.contained {
				args = n.contain(t).commandLine(t, n.flags)
			}
			n.launch(t, args)
			n.inMode(t, "ipvs")

			pods := exec.CommandContext(t.Context(), "sh", "-c", endingPods)
			if err := pods.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = pods.Wait() })

			web := w.web(t)
			web.annotations = annotations{"scheduler": "lblc"}
			n.write(t, web)
			poll(t, "the virtual server", settleTimeout, func() error {
				if got, want := n.run(t, "ipvsadm", "-Ln"), web.vip.v4+":80 "+tt.scheduler+"\n"; !strings.Contains(got, want) {
					return fmt.Errorf("no %q:\n%s", want, got)
				}
				return nil
			})
			if got := w.pod3.ask(backend.TCP, web.vip.v4, 80, 3); got.OK != 3 {
				t.Error(text(got))
			}
			if said := strings.Contains(n.output.String(), "ip_vs_lblc"); !said {
				t.Error("the log does not name the module")
			}
		})
	}
}
