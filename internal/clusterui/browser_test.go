package clusterui

import (
	"context"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/cluster"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
)

// browser returns the program of a browser without a window.
func browser(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		t.Skip("this machine has no chromium-headless-shell: e2e/install.sh browser")
	}
	return path
}

// browse opens an address and returns the page as it is after some seconds of the browser's own clock.
func browse(t *testing.T, address string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	args = append([]string{"--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,900", "--virtual-time-budget=8000", "--user-data-dir=" + t.TempDir()}, args...)
	out, err := exec.CommandContext(ctx, browser(t), append(args, "--dump-dom", address)...).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// serve runs a server for a test and returns its address.
func serve(t *testing.T, s *Server) string {
	t.Helper()
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s.URL(l)
}

// TestBrowserRefreshes: under the policy of the server the script runs, shows its button, and brings the next
// answer without a new page.
func TestBrowserRefreshes(t *testing.T) {
	browser(t)
	var rounds atomic.Int32
	s := New(func(ctx context.Context, q cluster.Question) (cluster.Report, error) {
		r, err := answers(3, 2)(ctx, q)
		if _, is := q.(*cluster.Status); is && rounds.Add(1) > 1 {
			r.Verdict = "another verdict"
		}
		return r, err
	}, time.Millisecond)
	page := browse(t, serve(t, s))
	if !strings.Contains(page, "another verdict") || strings.Contains(page, `aria-pressed="false" hidden`) {
		t.Errorf("after %d rounds the page is\n%s", rounds.Load(), page)
	}
}

// inlined is a page as one file, with its style, some scripts, and without a policy.
func inlined(t *testing.T, page string, scripts ...string) string {
	t.Helper()
	css, err := assets.ReadFile("assets/page.css")
	if err != nil {
		t.Fatal(err)
	}
	page = strings.Replace(page, `<link rel="stylesheet" href="page.css">`, "<style>"+string(css)+"</style>", 1)
	page = strings.Replace(page, `<script src="page.js" defer></script>`, "", 1)
	for _, script := range scripts {
		page = strings.Replace(page, "</body>", "<script>"+script+"</script></body>", 1)
	}
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	return "file://" + path
}

// verdictOf returns what a script of a test has written.
func verdictOf(t *testing.T, page string) string {
	t.Helper()
	m := regexp.MustCompile(`(?s)<pre id="test">(.*?)</pre>`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("the script of the test did not end:\n%s", page)
	}
	return html.UnescapeString(m[1])
}

const tellTest = `
function tell(text) { const p = document.createElement("pre"); p.id = "test"; p.textContent = text; document.documentElement.append(p); }
`

// TestBrowserKeepsFocus: a refresh leaves the focus where it was, and keeps a verdict that is the same as
// an element. Nothing is refreshed in a pause, or while a name is written.
func TestBrowserKeepsFocus(t *testing.T) {
	browser(t)
	script, err := assets.ReadFile("assets/page.js")
	if err != nil {
		t.Fatal(err)
	}
	_, page := get(t, New(answers(3, 2), time.Minute), "")
	const check = tellTest + `
let asked = 0;
const original = document.documentElement.outerHTML;
window.fetch = async () => { asked++; return { text: async () => original.replace("no backends", "changed " + asked) }; };
(async () => {
  const wrong = [];
  const want = (what, is) => { if (!is) wrong.push(what); };
  const links = () => document.querySelectorAll("tbody a");
  const verdict = document.getElementById("verdict");
  links()[1].focus();
  await refresh();
  want("a new cell", document.querySelector("td.bad").textContent === "changed 1");
  want("focus on the second link, not on " + document.activeElement.outerHTML, document.activeElement === links()[1]);
  want("the same verdict as an element", document.getElementById("verdict") === verdict);
  document.querySelector(".scroll").focus();
  await refresh();
  want("focus on the region that scrolls", document.activeElement === document.querySelector(".scroll"));
  document.getElementById("q").focus();
  await refresh();
  want("no refresh while a name is written", asked === 2);
  document.getElementById("pause").focus();
  document.getElementById("pause").click();
  await refresh();
  want("no refresh while paused", asked === 2);
  want("a button that says that it is pressed", document.activeElement.getAttribute("aria-pressed") === "true");
  tell(wrong.join("\n") || "well");
})().catch((e) => tell(String(e)));
`
	if got := verdictOf(t, browse(t, inlined(t, page, string(script)+check))); got != "well" {
		t.Errorf("the page lacks:\n%s", got)
	}
}

// TestBrowserAccessibility runs the rules of axe-core over both pages, light and dark.
func TestBrowserAccessibility(t *testing.T) {
	browser(t)
	axe, err := os.ReadFile(os.Getenv("KUBE_IPVS_AXE"))
	if err != nil {
		t.Skip("KUBE_IPVS_AXE names no axe.min.js (npm install axe-core)")
	}
	const check = tellTest + `
axe.run().then((r) => tell(r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.html).join(" ")).join("\n") || "well, " + (r.passes.length > 15))).catch((e) => tell(String(e)));
`
	s := New(answers(3, 2), time.Minute)
	for _, path := range []string{"", "service?name=shop/cart"} {
		_, page := get(t, s, path)
		for _, dark := range []string{"--blink-settings=preferredColorScheme=1", "--blink-settings=preferredColorScheme=0"} {
			if got := verdictOf(t, browse(t, inlined(t, page, string(axe), check), dark)); got != "well, true" {
				t.Errorf("%q %s:\n%s", path, dark, got)
			}
		}
	}
}

// pictured is the cluster of the picture: eight nodes with the five faults that the page of operators shows.
func pictured(_ context.Context, q cluster.Question) (cluster.Report, error) {
	r := cluster.Report{
		Verdict: "of 8 nodes 3 agree, 4 have findings, 1 has not answered", Nodes: 8, Common: []cluster.Fact{{Name: "scheduler", Value: "rr"}, {Name: "kernel", Value: "6.12.0"}},
		Silent: []cluster.Silence{{Node: "worker-6", Why: "no answer within 20s"}},
	}
	answered := []string{"worker-2", "worker-3", "worker-4", "worker-5", "worker-1", "worker-7", "worker-8"}
	switch q.(type) {
	case *cluster.Status:
		r.Findings = []cluster.Finding{
			{Nodes: []string{"worker-2"}, What: "the kernel lacks 2 rows of servers: -A -t 10.96.0.10:80 -s rr, ..."},
			{Nodes: []string{"worker-3"}, What: "the kernel lacks 1 row of sets: add KUBE-CLUSTER-IP 10.96.0.10,tcp:80"},
			{Nodes: []string{"worker-4"}, What: "runs version v0.0.9; 6 of 7 nodes run v0.1.0"},
			{Nodes: []string{"worker-5"}, What: "is in iptables mode; 6 of 7 nodes are in ipvs mode"},
		}
		r.Items = []any{cluster.StatusRow{Node: "worker-6", State: cluster.NoAnswer, Findings: 1}}
		for i, n := range answered {
			row := cluster.StatusRow{Node: n, State: cluster.Serving}
			if i < 4 {
				row.Findings = 1
			}
			r.Items = append(r.Items, row)
		}
	case *cluster.Services:
		r.Silent = nil
		for i, name := range []string{"shop/pay", "bank/ledger", "kube-system/dns", "shop/cart", "shop/front", "shop/names"} {
			states := []cluster.ServiceState{{State: inspect.StateServing, Nodes: answered}}
			if i == 0 {
				states = []cluster.ServiceState{{State: inspect.StateServing, Nodes: answered[1:]}, {State: inspect.StateNoBackends, Nodes: answered[:1]}}
			}
			namespace, service, _ := strings.Cut(name, "/")
			r.Items = append(r.Items, cluster.ServiceRow{Namespace: namespace, Name: service, Ports: []string{"80/tcp"}, States: states})
		}
	}
	return r, nil
}

// TestBrowserPicture draws the picture of the page of operators.
func TestBrowserPicture(t *testing.T) {
	if os.Getenv("KUBE_IPVS_E2E_RECORD") == "" {
		t.Skip("draws manifests/docs/cluster.png if KUBE_IPVS_E2E_RECORD is set")
	}
	picture, err := filepath.Abs("../../manifests/docs/cluster.png")
	if err != nil {
		t.Fatal(err)
	}
	address := serve(t, New(pictured, time.Minute))
	browse(t, address, "--window-size=1240,740", "--screenshot="+picture)
	if info, err := os.Stat(picture); err != nil || time.Since(info.ModTime()) > time.Minute || info.Size() < 10<<10 {
		t.Errorf("no picture, error %v", err)
	}
}
