package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/explain"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/modules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck/host"
)

// statusOf runs the program and returns its exit status.
func statusOf(args ...string) int {
	root := NewRoot()
	root.SetArgs(args)
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	cmd, err := root.ExecuteC()
	return report(cmd, err, io.Discard)
}

// answered is the status of a verb below the root whose answer is this error.
func answered(err error) int {
	root := NewRoot()
	return report(root.Commands()[0], err, io.Discard)
}

// outcomes has, for each verb, ways to each status that the table gives it. Where a verb needs a
// kernel it is asked beside one of fakes.
func outcomes(t *testing.T) map[string][3]func() int {
	web := directory(t, map[string]string{"web.yaml": manifest})
	next := directory(t, map[string]string{"web.yaml": strings.ReplaceAll(manifest, "10.244.0.5", "10.244.0.6")})
	bad := directory(t, map[string]string{"web.yaml": serviceText("web", "clusterIP: 10.96.0.256, ports: [{port: 80}]", "")})
	lost := directory(t, map[string]string{"web.yaml": serviceText("web", webSpec, "") + serviceText("late", webSpec, "")})
	run := func(args ...string) func() int { return func() int { return statusOf(args...) } }
	all := func(codes ...func() int) func() int { // of which each has the same status
		return func() int {
			var got []int
			for _, c := range codes {
				got = append(got, c())
			}
			if len(slices.Compact(slices.Clone(got))) > 1 {
				t.Errorf("statuses %v where one is wanted", got)
			}
			return got[0]
		}
	}
	return map[string][3]func() int{
		"": {run("--write-config-to", filepath.Join(t.TempDir(), "c")), all(run("--colour"), run("plam"), run("--proxy-mode=magic"), run("--source-dir=-")), nil},
		"plan": {
			all(run("plan", "--source-dir", web), run("plan", "--source-dir", lost), run("plan", "--source-dir", web, "--strict"), run("plan", "--source-dir", web, "--diff-against", web)),
			all(run("plan", "--source-dir", bad), run("plan", "--source-dir", lost, "--strict"), run("plan", "--source-dir", web, "--diff-against", next)),
			all(run("plan", "--source-dir", web+"/none"), run("plan", "--colour"), run("plan", "now"), run("plan", "--source-dir", web, "--show", "pods")),
		},
		"show":    showOutcomes(t),
		"explain": explainOutcomes(t, all, run),
		"diff":    diffOutcomes(t, run),
		"audit":   auditOutcomes(t, run),
		"top":     topOutcomes(t, run),
		"cluster": clusterOutcomes(t, run),
		"trace": {func() int {
			return answered(writeTrace(io.Discard, "text", watchTape(t, traceOptions{duration: time.Minute, packets: 3})))
		}, nil, all(run("trace", "x"), run("trace"))},
		"check":      {checkOutcome(diagnosis.Warn), checkOutcome(diagnosis.Failed), all(run("check", "-o", "xml"), run("check", "now"))},
		"cleanup":    cleanupOutcomes(t, run),
		"version":    {run("version"), nil, run("version", "now")},
		"completion": {run("completion", "bash"), nil, all(run("completion"), run("completion", "tcsh"))},
		"man":        {run("man", filepath.Join(t.TempDir(), "man8")), nil, all(run("man"), run("man", os.Args[0]))},
	}
}

func showOutcomes(t *testing.T) [3]func() int {
	s := openShop(t)
	k := s.kernel(io.Discard, s.config.Socket())
	run := func(args ...string) int { return statusOf(append([]string{"show", "--run-dir", s.dir}, args...)...) }
	return [3]func() int{
		func() int { return run("services", "shop/cart") + run("conflicts", "shop/stuck") + run("pending") },
		func() int {
			_, set := k.entries(t.Context(), query{named: "NOPE"})
			_, chain := k.rules(t.Context(), query{named: "NOPE"})
			for _, err := range []error{set, chain} {
				if code := answered(err); code != exitFound {
					t.Errorf("show kernel NOPE: status %d, %v", code, err)
				}
			}
			return max(run("services", "shop/nope"), run("backends", "nope"))
		},
		func() int { return statusOf("show", "status", "--run-dir", s.dir+"/none") },
	}
}

func explainOutcomes(t *testing.T, all func(...func() int) func() int, run func(...string) func() int) [3]func() int {
	asked := func(ask string) func() int {
		return func() (code int) {
			onNode(t, serviceText("web", webSpec, "")+sliceText("web", "", near), nil, func(n *fakeNode) { code = answered(reportAnswer(n.explain(ask, ""))) })
			return code
		}
	}
	alone := func() int {
		return answered(reportAnswer(explain.New("web", nil, errors.New("no agent"), explain.Found{})))
	}
	return [3]func() int{all(asked("web"), asked("10.244.0.5")), all(asked("store/nope"), asked("10.96.0.99"), alone), all(run("explain"), run("explain", "a/b/c"), run("explain", "web", "-o", "xml"))}
}

func diffOutcomes(t *testing.T, run func(...string) func() int) [3]func() int {
	differs := func(breaks func(*fakeNode)) func() int {
		return func() (code int) {
			onNode(t, serviceText("web", webSpec, "")+sliceText("web", "", near), nil, func(n *fakeNode) {
				breaks(n)
				code = answered(diff(n.Context(), n.config, agentOf{n}, n.readers(), io.Discard, "text"))
			})
			return code
		}
	}
	return [3]func() int{
		differs(func(*fakeNode) {}),
		differs(func(n *fakeNode) {
			must(n.T, n.servers.WriteServers(n.Context(), []vserver.ServerChange{{Op: vserver.Delete, Key: webServer}})...)
		}),
		run("diff", "--source-dir", "/nonexistent"),
	}
}

func auditOutcomes(t *testing.T, run func(...string) func() int) [3]func() int {
	s := openShop(t)
	return [3]func() int{
		run("audit", "--run-dir", s.dir),
		func() int { return answered(auditVerdict(agent.AuditReport{Unread: "sets: busy"})) },
		run("audit", "--run-dir", s.dir+"/none"),
	}
}

func topOutcomes(t *testing.T, run func(...string) func() int) [3]func() int {
	f := topFlags{once: true, interval: time.Millisecond, sort: "bytes", output: "text"}
	shown := func(service string) func() int {
		return func() int {
			_, _, err := f.one(t, agentAt(t), service)
			return answered(err)
		}
	}
	return [3]func() int{shown("shop/cart"), shown("shop/nope"), run("top", "--once", "--sort", "weight")}
}

func checkOutcome(state diagnosis.State) func() int {
	return func() int {
		return answered(asAnswer(nodecheck.Unfit(config.Config{}, []diagnosis.Verdict{{State: state}})))
	}
}

func cleanupOutcomes(t *testing.T, run func(...string) func() int) [3]func() int {
	swept := func() int {
		k := emptyKernel(t)
		return answered(asAnswer(dataplane.Sweep(t.Context(), k.mode(k.deps()), func(dataplane.Result) {})))
	}
	locked := func() (code int) {
		dir := t.TempDir()
		lock, err := holdRunDir(dir)
		must(t, err)
		defer lock.Close()
		synctest.Test(t, func(*testing.T) { code = statusOf("cleanup", "--run-dir", dir) }) // waits for lockWait
		return code
	}
	return [3]func() int{swept, locked, run("cleanup", "--for=unknown")}
}

// Each status of each verb is in the table of all.
func TestExitStatuses(t *testing.T) {
	ways := outcomes(t)
	var verbs []string
	for _, s := range exitStatuses() {
		verbs = append(verbs, s.verb)
		for code, meaning := range []string{s.good, s.found, s.failed} {
			way := ways[s.verb][code]
			if (way == nil) != (meaning == "") {
				t.Errorf("%q, status %d: tried %t, meaning %q", s.verb, code, way != nil, meaning)
				continue
			}
			if way == nil {
				continue
			}
			if got := way(); got != code {
				t.Errorf("%q: status %d, want %d: %s", s.verb, got, code, meaning)
			}
		}
	}
	for _, c := range NewRoot().Commands() {
		if !slices.Contains(verbs, c.Name()) {
			t.Errorf("the verb %s has no exit statuses", c.Name())
		}
	}
}

// The page of verbs has the same table, and help of a verb its line.
func TestExitStatusesAreDocumented(t *testing.T) {
	page := readPage(t, "../../cmd/README.md")
	for _, s := range exitStatuses() {
		name := "`" + s.verb + "`"
		if s.verb == "" {
			name = "the agent"
		}
		row := fmt.Sprintf("| %s | %s | %s | %s |", name, s.good, s.found, s.failed)
		if !strings.Contains(page, strings.ReplaceAll(row, "|  |", "| – |")) {
			t.Errorf("not on the page:\n%s", strings.ReplaceAll(row, "|  |", "| – |"))
		}
	}
	each(NewRoot(), func(c *cobra.Command) {
		help := strings.Join(exitStatusOf(c).lines(), "\n")
		if out := execute(t, append(strings.Fields(c.CommandPath())[1:], "--help")...); help == "" || !strings.Contains(out, "Exit status:\n"+help+"\n") {
			t.Errorf("%s --help does not say:\n%s", c.CommandPath(), help)
		}
	})
}

// The nearest name is suggested, and the line of usage shown.
func TestMistakesSuggest(t *testing.T) {
	for line, want := range map[string]string{
		"pln":                           "did you mean plan or man?",
		"--ipvs-sheduler=rr":            "did you mean --ipvs-scheduler?",
		"--ipvs_sheduler=rr":            "did you mean --ipvs-scheduler?",
		"--scheduler=rr":                "did you mean --ipvs-scheduler?",
		"plan --source-dri=.":           "did you mean --source-dir?",
		"show kernel server":            "did you mean servers?",
		"explain":                       "usage: kube-ipvs explain <namespace/name",
		"trace":                         "usage: kube-ipvs trace ADDRESS:PORT",
		"plan --show":                   "usage: kube-ipvs plan",
		"completion":                    "usage: kube-ipvs completion",
		"man":                           "usage: kube-ipvs man DIRECTORY",
		"top --once -x":                 "usage: kube-ipvs top",
		"show services --boot-id-fil=x": "help:  kube-ipvs show services --help",
	} {
		if _, err := try(strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", line, err, want)
		}
	}
}

// Shells complete the values of every flag that takes a few words.
func TestValuesAreCompleted(t *testing.T) {
	for line, want := range map[string]string{
		"--proxy-mode ":               "ipvs iptables auto",
		"plan --show ":                "servers sets rules addresses relays",
		"plan --log-level ":           "debug info warn error",
		"show services -o ":           "table wide json yaml",
		"show kernel sets --sort-by ": "set type entries owner family references memory -set -type -entries -owner -family -references -memory",
		"check --output ":             "text json",
		"cleanup --for ":              "ipvs iptables nftables",
		"top --sort ":                 "connections packets bytes active skew name",
		"completion ":                 "bash zsh fish powershell",
	} {
		words := regexp.MustCompile(` `).Split(line, -1)
		out := execute(t, append([]string{cobra.ShellCompNoDescRequestCmd}, words...)...)
		got, _, _ := strings.Cut(out, ":")
		if text := strings.Join(strings.Fields(got), " "); text != want {
			t.Errorf("%q is completed by %q, want %q", line, text, want)
		}
	}
	for _, flag := range []string{"proxy-mode", "on-missing-ipvs", "iptables-backend", "watch-nodes", "external-binding", "vip-binding", "detect-local-mode", "log-level", "logging-format", "nodeport-addresses"} {
		if len(config.Choices(flag)) < 2 {
			t.Errorf("--%s has no values to complete", flag)
		}
	}
}

func TestReport(t *testing.T) {
	var b strings.Builder
	root := NewRoot()
	verb := root.Commands()[0]
	for want, err := range map[int]error{0: nil, 1: asAnswer(errors.New("x")), 2: errors.New("y"), 3: exitError{code: 3}} {
		if got := report(verb, err, &b); got != want {
			t.Errorf("status %d, want %d", got, want)
		}
	}
	if lines := slices.Sorted(strings.Lines(b.String())); !slices.Equal(lines, []string{"kube-ipvs: x\n", "kube-ipvs: y\n"}) {
		t.Errorf("said %q", lines)
	}
	if got := report(root, errors.New("z"), io.Discard); got != 1 {
		t.Errorf("the agent ends with %d", got)
	}
}

// An agent in iptables mode is named by top, which has nothing to show then, and its endpoints
// are those that trace follows.
func TestVerbsKnowTheMode(t *testing.T) {
	onNode(t, serviceText("web", webSpec, "")+sliceText("web", "", near), []string{"--proxy-mode=iptables"}, func(n *fakeNode) {
		r := n.explain("web", "")
		if !r.OK || r.Story.Services[0].Frontends[0].Scheduler != "" {
			t.Errorf("verdict %q, scheduler %q", r.Verdict, r.Story.Services[0].Frontends[0].Scheduler)
		}
	})
	client := agentOfMode(t, "iptables")
	if err := carriesByIPVS(t.Context(), client); err == nil || !strings.Contains(err.Error(), "the agent is in iptables mode") {
		t.Errorf("top: error %v", err)
	}
	if err := carriesByIPVS(t.Context(), agentOfMode(t, "ipvs")); err != nil {
		t.Errorf("top: error %v", err)
	}
	target := traceTarget()
	carrier, err := agentBackends(t.Context(), client, &target)
	if err != nil || carrier != "iptables" || target.Serving != 1 {
		t.Errorf("trace: carrier %q, %d endpoints, error %v", carrier, target.Serving, err)
	}
	for _, c := range host.New(procfs.Files{}, "", nil, modules.New(zap.NewNop(), modules.Options{})).Checks(host.CheckOptions{NoIPVS: true}) {
		if strings.Contains(c.Name, "ipvs") {
			t.Errorf("check %q in iptables mode", c.Name)
		}
	}
}
