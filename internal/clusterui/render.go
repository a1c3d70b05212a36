package clusterui

import (
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// clock is how the pages print a time.
const clock = "15:04:05 UTC"

// body writes what both pages have in common around the part that is live.
func (w *writer) body(title, skip, to string, seconds int, header, live func()) {
	w.head(title)
	w.el("body", attributes{"data-seconds", strconv.Itoa(seconds)}, func() {
		w.text("a", attributes{"class", "skip", "href", "#" + to}, skip)
		w.el("header", nil, func() {
			header()
			w.el("p", nil, func() {
				w.text("button", attributes{"type", "button", "id", "pause", "aria-pressed", "false", "hidden", ""}, "Pause")
			})
		})
		w.WriteString("\n")
		w.el("main", attributes{"id", "live"}, live)
	})
	w.WriteString("\n</html>\n")
}

// verdict writes the first lines of a page.
func (w *writer) verdict(verdict, after string, problems []problem, more int) {
	w.text("p", attributes{"role", "status", "id", "verdict"}, verdict)
	w.text("p", attributes{"class", "at"}, after)
	if len(problems) == 0 {
		return
	}
	w.section("findings", "Findings", func() {
		w.list(attributes{"class", "findings"}, len(problems), func(i int) {
			w.text("strong", nil, problems[i].Nodes)
			w.say(": " + problems[i].What)
		})
		if more > 0 {
			w.text("p", nil, fmt.Sprintf("and %d more: kubectl ipvs status -o wide", more))
		}
	})
}

// render writes the first page.
func (g gridPage) render(w *writer) {
	w.body(g.Title, "Skip to the grid", "grid", g.Seconds, func() { w.text("h1", nil, "Nodes and Services") }, func() {
		after := "Asked at " + g.At + "."
		for i, f := range g.Common {
			after += map[bool]string{true: " All that answered: ", false: ", "}[i == 0] + f.Name + " " + f.Value
		}
		if len(g.Common) > 0 {
			after += "."
		}
		w.verdict(g.Verdict, after, g.Problems, g.More)
		w.section("services", "Services by node", func() {
			w.el("form", attributes{"method", "get", "role", "search"}, func() {
				w.text("label", attributes{"for", "q"}, "Services whose name has")
				w.el("input", attributes{"id", "q", "name", "q", "value", g.Query, "maxlength", "200", "autocomplete", "off"}, nil)
				w.text("button", nil, "Show")
			})
			g.renderGrid(w)
			g.renderPages(w)
		})
	})
}

func (g gridPage) renderGrid(w *writer) {
	caption := fmt.Sprintf("%d Services, page %d of %d. Services that differ by node come first.", g.Total, g.Page, g.Pages)
	w.table("grid", "Grid of Services and nodes", caption, func() {
		w.text("th", attributes{"scope", "col"}, "Service")
		for _, c := range g.Columns {
			w.el("th", attributes{"scope", "col"}, func() {
				w.say(c.Name)
				if c.State != "" {
					w.el("br", nil, nil)
					w.text("small", nil, c.State)
				}
			})
		}
	}, len(g.Rows), func(i int) {
		w.el("th", attributes{"scope", "row"}, func() {
			w.text("a", attributes{"href", "service?name=" + url.QueryEscape(g.Rows[i].Service)}, g.Rows[i].Service)
			w.say(" ")
			w.text("small", nil, g.Rows[i].Ports)
		})
		for _, c := range g.Rows[i].Cells {
			w.text("td", attributes{"class", c.Class}, c.State)
		}
	})
}

func (g gridPage) renderPages(w *writer) {
	if g.Pages == 1 {
		return
	}
	to := func(page int) string {
		return "?" + url.Values{"q": {g.Query}, "page": {strconv.Itoa(page)}}.Encode()
	}
	w.el("nav", attributes{"aria-label", "Pages of Services"}, func() {
		if g.Page > 1 {
			w.text("a", attributes{"rel", "prev", "href", to(g.Page - 1)}, "Previous page")
			w.say(" ")
		}
		if g.Page < g.Pages {
			w.text("a", attributes{"rel", "next", "href", to(g.Page + 1)}, "Next page")
		}
	})
}

// render writes the page of a Service.
func (p servicePage) render(w *writer) {
	w.body(p.Title, "Skip to the Service", "live", p.Seconds, func() {
		w.el("nav", attributes{"aria-label", "Where you are"}, func() { w.text("a", attributes{"href", "./"}, "All Services") })
		w.text("h1", nil, p.Name)
	}, func() {
		w.verdict(p.Verdict, "Asked at "+p.At+".", p.Problems, p.More)
		w.section("picture", "Frontends and backends", func() {
			w.el("div", attributes{"class", "picture"}, func() {
				w.list(attributes{"class", "frontends", "aria-label", "Frontends"}, len(p.Frontends), func(i int) { w.say(p.Frontends[i]) })
				w.text("span", attributes{"class", "arrow", "aria-hidden", "true"}, "→")
				p.renderBackends(w)
			})
		})
		if len(p.Drains) > 0 {
			w.section("drains", "Backends that drain or climb", func() { p.renderDrains(w) })
		}
		w.section("sentences", "Verdicts of nodes", func() {
			w.list(nil, len(p.Sentences), func(i int) {
				s := p.Sentences[i]
				w.text("span", attributes{"class", map[bool]string{true: "good", false: "bad"}[s.OK]}, map[bool]string{true: "Well", false: "Not well"}[s.OK])
				w.say(" on " + first(s.Nodes) + ": " + s.Sentence)
			})
		})
	})
}

func (p servicePage) renderBackends(w *writer) {
	caption := "Backends, summed over all nodes that have counters"
	if len(p.Backends) == 0 {
		caption = "No node has counters of this Service"
	}
	w.table("backends", "Backends", caption, func() {
		for _, name := range []string{"Backend", "State", "Weight", "Active", "Inactive", "Share of connections", "Busiest node"} {
			w.text("th", attributes{"scope", "col"}, name)
		}
	}, len(p.Backends), func(i int) {
		b := p.Backends[i]
		w.text("th", attributes{"scope", "row"}, b.Backend)
		w.text("td", attributes{"class", map[bool]string{true: "good", false: "notable"}[b.State == "serving"]}, b.State)
		for _, n := range []uint64{uint64(b.Weight), b.Active, b.Inactive} {
			w.text("td", nil, strconv.FormatUint(n, 10))
		}
		share := strconv.Itoa(b.Share)
		w.el("td", nil, func() {
			w.text("meter", attributes{"min", "0", "max", "100", "value", share, "aria-label", "share of connections of " + b.Backend}, share+" %")
			w.say(" " + share + " %")
		})
		w.text("td", nil, b.Busiest)
	})
}

func (p servicePage) renderDrains(w *writer) {
	w.list(nil, len(p.Drains), func(i int) {
		d := p.Drains[i]
		w.say(fmt.Sprintf("%s is %s on %s, with %d active connections", d.Backend, d.State, first(d.Nodes), d.Active))
		if d.Until != nil {
			w.say(" until " + d.Until.UTC().Format(clock))
		}
	})
}

// A failedPage is the reason why there is no other page.
type failedPage string

func (f failedPage) render(w *writer) {
	w.head("kube-ipvs: no answer")
	w.el("body", nil, func() {
		w.el("main", attributes{"id", "live"}, func() {
			w.text("h1", nil, "No answer")
			w.text("p", attributes{"role", "alert"}, string(f))
			w.el("p", nil, func() { w.text("a", attributes{"href", "./"}, "All Services") })
		})
	})
	w.WriteString("\n</html>\n")
}

// at is the time of an answer as pages print it.
func at(t time.Time) string { return t.UTC().Format(clock) }
