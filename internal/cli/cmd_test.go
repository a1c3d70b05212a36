package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

func TestPlan(t *testing.T) {
	dir := directory(t, map[string]string{"web.yaml": manifest})
	out := execute(t, "plan", "--source-dir", dir, "--hostname-override", "node-a")
	for _, want := range []string{
		"# servers\n-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 10.244.0.5:8080 -m -w 1\n",
		"add KUBE-CLUSTER-IP 10.96.0.10,tcp:80\n",
		"*nat\n", "-j MARK --set-xmark 0x4000/0x4000\n",
		"ip addr add 10.96.0.10/32 dev kube-ipvs0\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("plan lacks %q:\n%s", want, out)
		}
	}
}

func TestPlanOfOneKindIsReplayable(t *testing.T) {
	dir := directory(t, map[string]string{"web.yaml": manifest})
	out := execute(t, "plan", "--source-dir", dir, "--hostname-override", "node-a", "--show", "servers", "--ipvs-scheduler", "mh")
	want := "-A -t 10.96.0.10:80 -s mh -b mh-fallback,mh-port\n-a -t 10.96.0.10:80 -r 10.244.0.5:8080 -m -w 1\n"
	if out != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
}

// Conflicts are reported as they are after all Services are known, independent of their order.
func TestPlanTellsConflictsThatStand(t *testing.T) {
	service := func(name, created string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + ", namespace: default, creationTimestamp: \"" + created +
			"\"}\nspec:\n  clusterIP: 10.96.0.10\n  ports: [{port: 80}]\n---\n"
	}
	dir := directory(t, map[string]string{"all.yaml": service("a", "2023-01-01T00:00:00Z") + service("b", "2022-01-01T00:00:00Z") + service("c", "2021-01-01T00:00:00Z")})
	_, notes, err := talk("plan", "--source-dir", dir, "--hostname-override", "node-a")
	if err != nil {
		t.Fatal(err)
	}
	var conflicts []string
	for line := range strings.Lines(notes) {
		if who, _, ok := strings.Cut(line, ","); ok && strings.Contains(line, "belongs to") {
			conflicts = append(conflicts, who)
		}
	}
	want := []string{"default/a: 10.96.0.10:80/tcp belongs to default/c", "default/b: 10.96.0.10:80/tcp belongs to default/c"}
	if diff := cmp.Diff(want, conflicts); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

func TestMistakesAreClear(t *testing.T) {
	broken := directory(t, map[string]string{"a.yaml": manifest, "b.yaml": "kind: Service\napiVersion: v1\nspec: {portz: 1}\n"})
	file := filepath.Join(directory(t, map[string]string{"config": proxyFile + "clusterCIDR: here\n---\n" + ownFile + "watchNode: own\n"}), "config")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no source", []string{"plan"}, "no source of Services is configured"},
		{"no source to run", nil, "no source of Services is configured"},
		{"strange kind", []string{"plan", "--source-dir", broken, "--show", "pods"}, `"pods" is not one of servers, sets, rules, addresses`},
		{"strange verb", []string{"plam"}, `"plam" is neither a verb nor a flag`},
		{"argument", []string{"plan", "now"}, `"now" is neither a verb nor a flag`},
		{"strange flag", []string{"--colour"}, "unknown flag: --colour"},
		{"two mistakes at once", []string{"--ipvs-scheduler=best", "--proxy-mode=magic"}, `"magic" is not one of ipvs`},
		{"bad file", []string{"plan", "--source-dir", broken}, "files that cannot be read: 1"},
		{"nothing there", []string{"plan", "--source-dir", broken + "/none"}, "no such file or directory"},
		{"mistakes of a file", []string{"plan", "--config", file, "--ipvs-scheduler=best"}, "bad settings:\nwatchNode: unknown field\nclusterCIDR: \"here\" is not a CIDR such as 10.244.0.0/16\n--ipvs-scheduler: unknown scheduler"},
		{"mistakes of a file, to run", []string{"--config", file}, `clusterCIDR: "here" is not a CIDR`},
		{"file that is not there", []string{"check", "--config", "/nonexistent"}, "--config: open /nonexistent: no such file"},
		{"place to write to that is not there", []string{"--write-config-to=/nonexistent/x"}, "--write-config-to: open /nonexistent/x"},
		{"what cannot be written", []string{"--metrics-port=0", "--write-config-to=/nonexistent/x"}, "a file cannot turn a listener off"},
		{"no agent", []string{"show", "status", "--run-dir", t.TempDir()}, "no agent is running"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := try(tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// The documents of a configuration file begin like this.
const (
	proxyFile = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	ownFile   = "apiVersion: kube-ipvs.io/v1alpha1\nkind: KubeIPVSConfiguration\n"
)

// A verb takes the file, flags over it, and reports settings without effect.
func TestPlanWithAConfigurationFile(t *testing.T) {
	dir := directory(t, map[string]string{"web.yaml": manifest})
	file := filepath.Join(directory(t, map[string]string{
		"config": proxyFile + "ipvs: {scheduler: wlc}\niptables: {masqueradeBit: 9}\nnftables: {syncPeriod: 1m}\n---\n" + ownFile + "sourceDir: " + dir + "\n",
	}), "config")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"file", nil, "-s wlc\n"},
		{"flag over it", []string{"--ipvs-scheduler=sh"}, "-s sh -b sh-fallback\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, notes, err := talk(append([]string{"plan", "--hostname-override=node-a", "--config", file}, tt.args...)...)
			if err != nil || !strings.Contains(out, tt.want) || !strings.Contains(out, "--set-xmark 0x200/0x200") {
				t.Errorf("error %v, no %q in\n%s", err, tt.want, out)
			}
			if want := "warning: settings without effect in kube-ipvs: nftables.syncPeriod\n"; notes != want {
				t.Errorf("notes %q, want %q", notes, want)
			}
		})
	}
}

// A written file can be loaded, and the agent does not start.
func TestWriteConfigTo(t *testing.T) {
	dir := directory(t, map[string]string{"web.yaml": manifest})
	file := filepath.Join(dir, "..config")
	_, notes, err := talk("--write-config-to", file, "--source-dir", dir, "--ipvs-scheduler=wlc", "--vmodule=a=1")
	if err != nil || notes != "warning: settings without effect in kube-ipvs: --vmodule\n" {
		t.Fatalf("error %v, notes %q", err, notes)
	}
	if out := execute(t, "plan", "--config", file, "--show=servers"); !strings.HasPrefix(out, "-A -t 10.96.0.10:80 -s wlc\n") {
		t.Errorf("plan\n%s", out)
	}
}

// --cleanup is the verb of this name, as far as a running agent lets it.
func TestCleanupByFlag(t *testing.T) {
	dir := t.TempDir()
	lock, err := holdRunDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	for _, arg := range []string{"cleanup", "--cleanup"} {
		synctest.Test(t, func(*testing.T) { _, err = try(arg, "--run-dir", dir) }) // waits for lockWait
		if err == nil || !strings.Contains(err.Error(), "stop the agent first") {
			t.Errorf("%s: error %v, want one about the agent that runs", arg, err)
		}
	}
}

func TestUnderscoresInFlagNames(t *testing.T) {
	dir := directory(t, map[string]string{"web.yaml": manifest})
	execute(t, "plan", "--source_dir", dir, "--hostname_override", "node-a")
}

func TestHelpHasExamples(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"plan", "--help"}, {"show", "status", "--help"}, {"check", "--help"}, {"cleanup", "--help"}} {
		if out := execute(t, args...); !strings.Contains(out, "Examples:\n") {
			t.Errorf("%v: no examples in\n%s", args, out)
		}
	}
}

// Help shows ours and the common flags first, and none that does nothing.
func TestHelpIsReadable(t *testing.T) {
	_, out, _ := strings.Cut(execute(t, "--help"), "\nVerbs:\n")
	at := -1
	for _, want := range []string{"config", "source-dir", "ipvs-scheduler", "cluster-cidr", "kubeconfig", "healthz-bind-address", "conntrack-min", "log-level", "cleanup", "help"} {
		next := strings.Index(out, " --"+want+" ")
		if next <= at {
			t.Errorf("--%s is at %d, want behind %d", want, next, at)
		}
		at = next
	}
	for _, hidden := range []string{"--healthz-port", "--vmodule", "--config-sync-period", "--boot-id-file"} {
		if strings.Contains(out, hidden) {
			t.Errorf("%s is shown", hidden)
		}
	}
	if help := execute(t, "--help"); !strings.Contains(help, "\n  man ") {
		t.Errorf("man is no verb of\n%s", help)
	}
	for text := range strings.Lines(out) {
		if len(text) > terminal+1 {
			t.Errorf("a line of %d characters: %s", len(text), text)
		}
	}
}

// BenchmarkPlan is the whole way from manifests on disk to the printed plan.
func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			dir := directory(b, map[string]string{"services.json": manyServices(n)})
			for b.Loop() {
				if _, err := try("plan", "--source-dir", dir, "--hostname-override", "node-a"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "us/service")
		})
	}
}

// manyServices is a stream of JSON objects: n Services with ten endpoints each.
func manyServices(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s%d","namespace":"ns"},"spec":{"clusterIP":"10.%d.%d.%d","ports":[{"port":80}]}}`+"\n",
			i, 96+i>>16, i>>8&255, i&255)
		fmt.Fprintf(&b, `{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"s%d","namespace":"ns","labels":{"kubernetes.io/service-name":"s%d"}},"addressType":"IPv4","ports":[{"name":"","port":8080}],"endpoints":[`, i, i)
		for e := range 10 {
			if e > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"addresses":["10.%d.%d.%d"],"nodeName":"node-%d"}`, 128+i>>14, i>>6&255, i<<2&252+e, e)
		}
		b.WriteString("]}\n")
	}
	return b.String()
}
