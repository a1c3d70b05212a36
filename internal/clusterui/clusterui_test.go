package clusterui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/html"

	"github.com/kube-ipvs/kube-ipvs/internal/cluster"
	"github.com/kube-ipvs/kube-ipvs/internal/inspect"
	"github.com/kube-ipvs/kube-ipvs/internal/top"
)

// No test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hostile = `<script>alert("x")</script>`

// answers returns reports of so many nodes, of which worker-1 has a finding and worker-2 is silent.
func answers(nodes, services int) Ask {
	return func(_ context.Context, q cluster.Question) (cluster.Report, error) {
		r := cluster.Report{
			Verdict: fmt.Sprintf("of %d nodes 1 has findings", nodes), Nodes: nodes, Common: []cluster.Fact{{Name: "mode", Value: "ipvs"}},
			Silent: []cluster.Silence{{Node: "worker-2", Pod: "p", Why: "no answer within 20s"}}, Findings: []cluster.Finding{{Nodes: []string{"worker-1"}, What: hostile}},
		}
		var names []string
		for i := range nodes {
			names = append(names, fmt.Sprint("worker-", i+1))
		}
		switch q.(type) {
		case *cluster.Status:
			for i, n := range names {
				row := cluster.StatusRow{Node: n, State: cluster.Serving}
				if i == 0 {
					row.Findings = 1
				}
				if i == 1 {
					row.State, row.Findings = cluster.NoAnswer, 1
				}
				r.Items = append(r.Items, row)
			}
		case *cluster.Services:
			for i := range services {
				states := []cluster.ServiceState{{State: inspect.StateServing, Nodes: slices.Delete(slices.Clone(names), 1, 2)}}
				if i == services-1 {
					states = []cluster.ServiceState{{State: inspect.StateServing, Nodes: names[2:]}, {State: inspect.StateNoBackends, Nodes: names[:1]}}
				}
				r.Items = append(r.Items, cluster.ServiceRow{Namespace: "shop", Name: fmt.Sprint("service-", i), Ports: []string{"80/tcp"}, VIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")}, States: states})
			}
		case *cluster.Explain:
			r.Items = []any{cluster.ExplainRow{OK: true, Sentence: "all is well", Nodes: names}, cluster.ExplainRow{Sentence: hostile, Nodes: names[:1]}}
		case *cluster.Top:
			r.Items = []any{
				cluster.TopRow{Backend: "10.244.0.5:80", Weight: 3, Active: 30, Nodes: nodes, Busiest: "worker-3", Rates: top.Rates{BytesIn: 1}},
				cluster.TopRow{Backend: "10.244.0.6:80", Active: 10, Nodes: 2, Draining: 2},
			}
		case *cluster.Drains:
			until := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
			r.Items = []any{cluster.DrainRow{Backend: "10.244.0.6:80", State: "draining", Active: 10, Until: &until, Nodes: names}}
		}
		return r, nil
	}
}

// get asks a server for a path below its secret.
func get(t *testing.T, s *Server, path string) (*httptest.ResponseRecorder, string) {
	t.Helper()
	return request(t, s, http.MethodGet, "127.0.0.1:8080", "/"+s.secret+"/"+path)
}

func request(t *testing.T, s *Server, method, host, path string) (*httptest.ResponseRecorder, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "http://"+host+path, nil))
	return w, w.Body.String()
}

// elements returns the elements of a page by their names.
func elements(t *testing.T, page string) map[string][]*html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]*html.Node{}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			out[n.Data] = append(out[n.Data], n)
		}
	}
	return out
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// textOf returns the text of an element.
func textOf(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.TrimSpace(b.String())
}

// readable fails where a page is not for keyboards and screen readers, or loads what is not ours.
func readable(t *testing.T, page string) map[string][]*html.Node {
	t.Helper()
	of := elements(t, page)
	if attribute(of["html"][0], "lang") != "en" || len(of["h1"]) != 1 || len(of["main"]) != 1 || textOf(of["title"][0]) == "" {
		t.Errorf("no language, title, main or single h1:\n%s", page)
	}
	if a := of["a"][0]; attribute(a, "class") != "skip" {
		t.Errorf("the first link does not skip to the content: %v", a.Attr)
	}
	for _, th := range of["th"] {
		if s := attribute(th, "scope"); s != "col" && s != "row" {
			t.Errorf("a heading of a table without a scope: %s", textOf(th))
		}
	}
	if len(of["caption"]) != len(of["table"]) || len(of["table"]) == 0 {
		t.Errorf("%d tables, %d captions", len(of["table"]), len(of["caption"]))
	}
	labels := map[string]bool{}
	for _, l := range of["label"] {
		labels[attribute(l, "for")] = true
	}
	for _, input := range of["input"] {
		if !labels[attribute(input, "id")] {
			t.Errorf("an input without a label: %v", input.Attr)
		}
	}
	ids := map[string]bool{}
	for _, list := range of {
		for _, n := range list {
			if id := attribute(n, "id"); id != "" {
				if ids[id] {
					t.Errorf("two elements are %s", id)
				}
				ids[id] = true
			}
		}
	}
	for name, list := range of {
		for _, n := range list {
			if by := attribute(n, "aria-labelledby"); by != "" && !ids[by] {
				t.Errorf("%s is labelled by %s, which is nowhere", name, by)
			}
			if strings.HasPrefix(attribute(n, "class"), "scroll") && attribute(n, "tabindex") != "0" {
				t.Error("a region that scrolls and takes no focus")
			}
			for _, a := range n.Attr {
				if a.Key == "style" || strings.HasPrefix(a.Key, "on") || (a.Key == "src" || a.Key == "href") && strings.Contains(a.Val, "//") {
					t.Errorf("%s has %s=%q: inline, or from elsewhere", name, a.Key, a.Val)
				}
			}
		}
	}
	for _, script := range of["script"] {
		if attribute(script, "src") == "" {
			t.Errorf("an inline script: %s", textOf(script))
		}
	}
	return of
}

func TestOverview(t *testing.T) {
	s := New(answers(3, 2), time.Minute)
	resp, page := get(t, s, "")
	if resp.Code != http.StatusOK {
		t.Fatalf("%d:\n%s", resp.Code, page)
	}
	of := readable(t, page)
	var cells []string
	for _, td := range of["td"] {
		cells = append(cells, attribute(td, "class")+" "+textOf(td))
	}
	// The Service that differs comes first. A state is a word, and no colour alone.
	if want := []string{"bad no backends", "unknown no answer", "good serving", "good serving", "unknown no answer", "good serving"}; !slices.Equal(cells, want) {
		t.Errorf("cells %q, want %q", cells, want)
	}
	for _, want := range []string{"<li><strong>worker-2</strong>: has not answered: no answer within 20s</li>", `<p role="status" id="verdict">of 3 nodes`, "All that answered: mode ipvs.", `href="service?name=shop%2Fservice-1"`, "worker-1<br><small>serving, 1 finding<"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	if strings.Contains(page, hostile) || !strings.Contains(page, "&lt;script&gt;alert") {
		t.Error("text of a node is not escaped")
	}
}

// TestManyNodesAndServices: the grid stays of one size, and all of it can be reached.
func TestManyNodesAndServices(t *testing.T) {
	s := New(answers(500, 1000), time.Minute)
	_, page := get(t, s, "?page=2")
	of := readable(t, page)
	if got := len(of["tr"]); got != mostRows+1 {
		t.Errorf("%d rows", got)
	}
	if got := len(of["th"]); got != mostRows+mostColumns+2 || !strings.Contains(page, "470 other nodes") || !strings.Contains(page, "1000 Services, page 2 of 10") {
		t.Errorf("%d headings", got)
	}
	if !strings.Contains(page, "page=1") || !strings.Contains(page, "page=3") {
		t.Error("no links to the pages beside it")
	}
	for query, want := range map[string]string{"?q=service-99": "11 Services, page 1 of 1", "?q=nope&page=7": "0 Services, page 1 of 1", "?page=x": "page 1 of 10", "?page=99": "page 10 of 10"} {
		if _, page := get(t, s, query); !strings.Contains(page, want) {
			t.Errorf("%s: no %q", query, want)
		}
	}
}

func TestService(t *testing.T) {
	s := New(answers(3, 1), time.Minute)
	resp, page := get(t, s, "service?name=shop/cart")
	if resp.Code != http.StatusOK {
		t.Fatalf("%d:\n%s", resp.Code, page)
	}
	readable(t, page)
	for _, want := range []string{
		"<li>10.96.0.10 (80/tcp)</li>", `<th scope="row">10.244.0.5:80</th><td class="good">serving</td><td>3</td><td>30</td>`, "75 %</td><td>worker-3</td>",
		`<td class="notable">draining</td>`, "10.244.0.6:80 is draining on worker-1, worker-2, worker-3, with 10 active connections until 12:00:00 UTC", ">Well</span> on worker-1, worker-2, worker-3: all is well",
		">Not well</span> on worker-1: &lt;script",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	for _, name := range []string{"", "shop", "shop/", "/cart", "a/b;c", "shop/" + strings.Repeat("x", 400), "-n/../x%00", "-n/x"} {
		if resp, _ := get(t, s, "service?name="+name); resp.Code != http.StatusBadRequest {
			t.Errorf("name %q: %d", name, resp.Code)
		}
	}
}

// TestOnlyForThisMachine: requests of a foreign page, of another user and of a form are refused.
func TestOnlyForThisMachine(t *testing.T) {
	s := New(answers(3, 1), time.Minute)
	for _, tt := range []struct {
		method, host, path string
		status             int
	}{
		{"GET", "evil.example:8080", "/" + s.secret + "/", http.StatusForbidden},
		{"GET", "192.0.2.1:8080", "/" + s.secret + "/", http.StatusForbidden},
		{"GET", "127.0.0.1:8080", "/", http.StatusNotFound},
		{"GET", "127.0.0.1:8080", "/" + strings.Repeat("0", 32) + "/", http.StatusNotFound},
		{"POST", "127.0.0.1:8080", "/" + s.secret + "/", http.StatusMethodNotAllowed},
		{"DELETE", "127.0.0.1:8080", "/" + s.secret + "/service", http.StatusMethodNotAllowed},
		{"GET", "localhost:8080", "/" + s.secret + "/page.css", http.StatusOK},
		{"GET", "[::1]:8080", "/" + s.secret + "/page.js", http.StatusOK},
	} {
		resp, _ := request(t, s, tt.method, tt.host, tt.path)
		if resp.Code != tt.status {
			t.Errorf("%s %s%s: %d, want %d", tt.method, tt.host, tt.path, resp.Code, tt.status)
		}
	}
	resp, _ := get(t, s, "")
	if p := resp.Header().Get("Content-Security-Policy"); !strings.HasPrefix(p, "default-src 'none'; script-src 'self';") {
		t.Errorf("policy %q", p)
	}
	for _, at := range []string{"0.0.0.0:0", "192.0.2.1:80", "localhost:0", "8080", ""} {
		if l, err := Listen(t.Context(), at); err == nil {
			l.Close()
			t.Errorf("listens on %q", at)
		}
	}
}

// TestFailures: an API server that refuses is told, is asked again, and its words are escaped.
func TestFailures(t *testing.T) {
	asked, refuse := 0, true
	s := New(func(ctx context.Context, q cluster.Question) (cluster.Report, error) {
		asked++
		if refuse {
			return cluster.Report{}, errors.New("pods is forbidden " + hostile)
		}
		return answers(3, 1)(ctx, q)
	}, time.Minute)
	resp, page := get(t, s, "")
	if resp.Code != http.StatusBadGateway || !strings.Contains(page, `<p role="alert">pods is forbidden &lt;script`) {
		t.Errorf("%d:\n%s", resp.Code, page)
	}
	refuse = false
	for range 3 {
		if resp, _ := get(t, s, ""); resp.Code != http.StatusOK {
			t.Error(resp.Code)
		}
	}
	if asked != 3 { // one refusal, and two questions for three pages
		t.Errorf("asked %d times", asked)
	}
}

// TestAbandonedRequest: an answer that came after its browser left is not shown to the next one.
func TestAbandonedRequest(t *testing.T) {
	s := New(answers(3, 1), time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:1/"+s.secret+"/", nil))
	if w.Code != http.StatusBadGateway || !s.overview.at.IsZero() {
		t.Errorf("status %d, kept at %s", w.Code, s.overview.at)
	}
}

// TestServe: the printed address leads to the page, until the context ends.
func TestServe(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(answers(3, 1), time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(s.URL(l))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestServicesKeptAreBounded: many Services that are looked at leave no pages behind.
func TestServicesKeptAreBounded(t *testing.T) {
	s := New(answers(2, 1), time.Minute)
	for i := range 3 * mostServices {
		s.cacheOf(fmt.Sprint("shop/", i))
	}
	if len(s.services) > mostServices {
		t.Errorf("%d kept", len(s.services))
	}
}
