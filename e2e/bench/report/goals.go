package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/stats"
)

// Ours is the candidate that has goals.
const Ours = "kube-ipvs"

// others are those that a change has to be faster in, too.
var others = []string{"kube-proxy-nftables", "kube-proxy-iptables"}

// Goals writes what the candidate Ours is to reach, beside what was measured, in one line each. A goal that cannot be judged says which cell or
// part of one is missing.
func Goals(w io.Writer, cells []*cell.Cell) error {
	b := &board{cells: cells}
	b.judge()
	var out strings.Builder
	fmt.Fprintf(&out, "\nGoals of %s\n\n", Ours)
	writeAligned(&out, append([][]string{{"goal", "wanted", "Services", "measured", "verdict"}}, b.lines...), 2, 4)
	out.WriteString("\n\"noisy\": halves or rounds of a figure differ by more than 25 %, or the machine's own speed did between the two cells. Starts are measured once. A p99 of fewer than 100 samples is the slowest.\n")
	_, err := io.WriteString(w, out.String())
	return err
}

// board is a list of verdicts that is being made.
type board struct {
	cells []*cell.Cell
	lines [][]string
}

func (b *board) judge() {
	b.endpoint()
	b.faster()
	b.start()
	b.idle()
	b.churn()
	b.memory()
	b.soak()
	b.packets()
}

func (b *board) endpoint() {
	p50 := theFigure("one endpoint changes", "p50")
	b.share("one endpoint: p50", p50, 1000, 100)
	b.share("one endpoint: p50", p50, 5000, 200)
	for _, name := range []string{"CPU", aboveRest} {
		b.share("one endpoint: "+name, theFigure("one endpoint changes", name), 1000, 300)
		b.share("one endpoint: "+name, theFigure("one endpoint changes", name), 5000, 1000)
	}
	for _, n := range b.sizes() {
		b.most("one endpoint: processes launched", n, b.own(n, theFigure("one endpoint changes", "processes launched")), 0, count)
	}
	few, many := b.own(100, p50), b.own(10_000, p50)
	b.add("one endpoint: p50 with 10,000 Services to that with 100", "at most 1.3", "100, 10,000", few.beside(many, duration), many.by(few).atMost(1.3))
}

// faster compares with the modes of kube-proxy that are not the baseline.
func (b *board) faster() {
	for _, part := range []string{"one endpoint changes", "one Service comes"} {
		for _, peer := range others {
			for _, n := range b.sizes() {
				var texts, verdicts []string
				for _, name := range []string{"p50", "p90", "p99"} {
					s := b.to(peer, n, theFigure(part, name))
					texts, verdicts = append(texts, name+" "+s.share()), append(verdicts, s.below(1))
				}
				b.add(part+": p50, p90, p99 to "+peer, "below 1", count(float64(n)), strings.Join(texts, ", "), worst(verdicts))
			}
		}
	}
}

func (b *board) start() {
	full := theFigure("start", "quiet since")
	for _, f := range []figure{full, theFigure("start", programmed), theFigure("start", "CPU")} {
		b.share("start: "+f.name, f, 1000, 10)
		b.share("start: "+f.name, f, 5000, 20)
	}
	for _, n := range b.sizes() {
		b.most("start: processes launched", n, b.own(n, theFigure("start", "processes launched")), 15, count)
	}
	for _, n := range b.sizes() {
		s := b.own(n, theFigure("start", timesLimit))
		took, least := b.own(n, theFigure("start", writing)), b.own(n, theFigure("start", "the limit of writing its rows"))
		b.add("start: "+writing+", times the limit", "at most 1.5", count(float64(n)), least.beside(took, duration), s.atMost(1.5))
	}
	for _, n := range b.sizes() {
		b.most("start: writing with nobody asking, times the limit", n, b.own(n, theFigure("start", unaskedTimes)), 1.5, digits)
	}
	for _, n := range b.sizes() {
		b.most("start: writing by "+roomsAlone, n, b.own(n, theFigure("start", roomsAlone)), 1.5, digits)
	}
	for _, n := range b.sizes() {
		first, all := b.own(n, theFigure("start", "first Service answers")), b.own(n, full)
		b.add("start: first Service answers, share of "+full.name, "at most 1/10", count(float64(n)), all.beside(first, duration), first.by(all).atMost(1.0/10))
	}
}

func (b *board) idle() {
	for _, name := range []string{"CPU in 30 s", "CPU in 30 s, with a repair"} {
		b.share("idle: "+name, theFigure("idle", name), 5000, 100)
	}
	back, period := theFigure("idle", "lost destination is back"), theFigure("idle", "period of looking for such")
	for _, n := range b.sizes() {
		took, every := b.own(n, back), b.own(n, period)
		b.add("idle: lost destination is back, in periods of looking for such", "at most 1", count(float64(n)), every.beside(took, duration), took.by(every).atMost(1))
	}
}

func (b *board) churn() {
	for _, n := range b.sizes() {
		s := b.own(n, theFigure("many endpoints change", "p99, times that when quiet"))
		b.add("many endpoints change: p99 of a probe to its quiet p99", "below 2", count(float64(n)), s.share()+b.slowestOf(n), s.below(2))
	}
	for _, n := range b.sizes() {
		s := b.own(n, theFigure("many endpoints change", "median, second half to first"))
		text := s.text(digits)
		if s.why == "" {
			text += fmt.Sprintf(" (%s changes a second, quiet %s after the last)", b.own(n, theFigure("many endpoints change", "changes a second")).text(count),
				b.own(n, theFigure("many endpoints change", "quiet after the last")).text(duration))
		}
		b.add("many endpoints change: median of the second half to that of the first", "at most 1.25", count(float64(n)), text, s.atMost(1+cell.Noisy))
	}
}

// slowestOf says of how many samples a p99 is the slowest, where it is.
func (b *board) slowestOf(n int) string {
	c := b.cell(Ours, n)
	if c == nil || c.Churn == nil || len(c.Churn.Probes.Times) >= 100 {
		return ""
	}
	return fmt.Sprintf(" (the slowest of %d)", len(c.Churn.Probes.Times))
}

func (b *board) memory() {
	for _, f := range []figure{theFigure("start", "RSS after it"), theFigure("many endpoints change", "RSS after it")} {
		s := b.to(Baseline, 10_000, f)
		b.add(f.part+": "+f.name+" to "+Baseline, "below 1/2", "10,000", s.share()+b.values(Baseline, 10_000, f), s.below(0.5))
		own, bound := b.own(10_000, f), b.own(10_000, theFigure("start", memoryBound))
		r := own.by(bound)
		b.add(f.part+": "+f.name+" to "+memoryBound+" endpoint", "below 1", "10,000", bound.beside(own, memory), r.below(1))
	}
}

// flat is how much more RSS the last tenth of a soak may have than the first: the heap breathes.
const flat = 1.1

func (b *board) soak() {
	ratio, changes := b.own(10_000, theFigure("very many endpoints change", tenths)), b.own(10_000, theFigure("very many endpoints change", "changes"))
	text := ratio.text(digits)
	if ratio.why == "" {
		text += fmt.Sprintf(" (%s changes)", changes.text(count))
	}
	b.add("very many endpoints change: "+tenths, "at most "+digits(flat), "10,000", text, ratio.atMost(flat))
}

func (b *board) packets() {
	for _, name := range []string{"connections a second", "requests a second, one connection"} {
		f := theFigure("data plane", name)
		s := b.to(Baseline, 10_000, f)
		verdict := s.atLeast(1)
		if spread := b.spread(name, 10_000); verdict == missed && s.high > 1-spread {
			verdict += fmt.Sprintf(", by less than rounds differ (%.0f %%)", 100*spread)
		}
		b.add("data plane: "+name+" to "+Baseline, "at least 1", "10,000", s.share()+b.values(Baseline, 10_000, f), verdict)
	}
	rules := theFigure("start", "rules of iptables")
	few, many := b.own(100, rules), b.own(10_000, rules)
	b.add("data plane: rules of iptables with 10,000 Services to those with 100", "at most 1", "100, 10,000", few.beside(many, count), many.by(few).atMost(1))
}

// spread is how far the rounds of the two candidates differ at most.
func (b *board) spread(name string, n int) (most float64) {
	for _, candidate := range []string{Ours, Baseline} {
		if c := b.cell(candidate, n); c != nil && c.Packets != nil {
			speed := c.Packets.Rate
			if name != "connections a second" {
				speed = c.Packets.Request
			}
			most = max(most, speed.Spread)
		}
	}
	return most
}

// share wants a figure of ours to be at most a part of the baseline's.
func (b *board) share(what string, f figure, n int, part float64) {
	s := b.to(Baseline, n, f)
	b.add(what+" to "+Baseline, "at most 1/"+count(part), count(float64(n)), s.share()+b.values(Baseline, n, f), s.atMost(1/part))
}

// most wants a figure to be at most a number.
func (b *board) most(what string, n int, s span, wanted float64, text func(float64) string) {
	b.add(what, "at most "+text(wanted), count(float64(n)), s.text(text), s.atMost(wanted))
}

func (b *board) add(goal, wanted, services, measured, verdict string) {
	b.lines = append(b.lines, []string{goal, wanted, services, measured, verdict})
}

// sizes are the numbers of Services that there are cells of.
func (b *board) sizes() []int {
	var out []int
	for _, c := range b.cells {
		if !slices.Contains(out, c.Services) {
			out = append(out, c.Services)
		}
	}
	return out
}

func (b *board) cell(candidate string, n int) *cell.Cell {
	for _, c := range b.cells {
		if c.Candidate == candidate && c.Services == n {
			return c
		}
	}
	return nil
}

// skipped is the name by which a cell says why it has none of a part's figures.
var skipped = map[string]string{
	"one endpoint changes": "endpoint", "one Service comes": "service", "idle": "idle", "many endpoints change": "churn",
	"very many endpoints change": "soak", "data plane": "packets",
}

// of is a figure of one cell, or why it is not known.
func (b *board) of(candidate string, n int, f figure) span {
	c := b.cell(candidate, n)
	if c == nil {
		return span{why: fmt.Sprintf("no cell of %s with %s Services", candidate, count(float64(n)))}
	}
	v := f.of(c)
	if !v.known {
		who := fmt.Sprintf("%s, %s Services", candidate, count(float64(n)))
		if reason := c.Missing[skipped[f.part]]; reason != "" {
			return span{why: fmt.Sprintf("%s: %s", who, reason)}
		}
		return span{why: fmt.Sprintf("%s: not known: %s, %s", who, f.part, f.name)}
	}
	s := span{low: v.number, high: v.number, noisy: v.noisy}
	if v.over {
		s.high = math.Inf(1)
	}
	return s
}

func (b *board) own(n int, f figure) span { return b.of(Ours, n, f) }

// to is a figure of ours by that of another.
func (b *board) to(peer string, n int, f figure) span {
	s := b.own(n, f).by(b.of(peer, n, f))
	s.noisy = s.noisy || unsteady(b.cell(Ours, n), b.cell(peer, n))
	return s
}

// values are both figures that a ratio is made of.
func (b *board) values(peer string, n int, f figure) string {
	own, other := b.own(n, f), b.of(peer, n, f)
	if own.why+other.why != "" {
		return ""
	}
	return fmt.Sprintf(" (%s, %s)", own.text(f.text), other.text(f.text))
}

// unsteady tells whether the machine was so much faster for one of two candidates that no comparison is exact.
func unsteady(cells ...*cell.Cell) bool {
	var spins []float64
	for _, c := range cells {
		if c == nil {
			continue
		}
		for _, at := range []*cell.Calibration{c.Before, c.After} {
			if at != nil {
				spins = append(spins, at.Spins)
			}
		}
	}
	return stats.Spread(spins...) > cell.Noisy
}

// theFigure is one of the table's. Names are those of this package, so one that is not there is a mistake in it.
func theFigure(part, name string) figure {
	all := figures()
	i := slices.IndexFunc(all, func(f figure) bool { return f.part == part && f.name == name })
	if i < 0 {
		panic("no figure " + part + ", " + name)
	}
	return all[i]
}

// span is where a number lies. Both ends are the same where it was measured; one is open where the limit of waiting came first.
type span struct {
	low, high float64
	noisy     bool
	why       string // why it is not known
}

// by is the quotient of two numbers.
func (s span) by(base span) span {
	out := span{low: s.low / base.high, high: s.high / base.low, noisy: s.noisy || base.noisy, why: cmp.Or(s.why, base.why)}
	if out.why == "" && base.low == 0 {
		out.why = "nothing to compare with: 0"
	}
	return out
}

// Verdicts.
const (
	met    = "met"
	missed = "missed"
	open   = "open: the limit of waiting came first"
)

func (s span) verdict(yes, no bool) string {
	text := open
	switch {
	case s.why != "":
		return "not measured: " + s.why
	case yes:
		text = met
	case no:
		text = missed
	}
	if s.noisy {
		text += ", noisy"
	}
	return text
}

func (s span) atMost(n float64) string  { return s.verdict(s.high <= n, s.low > n) }
func (s span) below(n float64) string   { return s.verdict(s.high < n, s.low >= n) }
func (s span) atLeast(n float64) string { return s.verdict(s.low >= n, s.high < n) }

// worst is the first verdict of those that say least good: one that was missed, then one that is not known.
func worst(verdicts []string) string {
	rank := func(v string) int {
		return slices.IndexFunc([]string{missed, "not measured", open, met + ",", ""}, func(prefix string) bool { return strings.HasPrefix(v, prefix) })
	}
	return slices.MinFunc(verdicts, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
}

func (s span) text(unit func(float64) string) string {
	text := unit(s.low)
	switch {
	case s.why != "":
		return "–"
	case math.IsInf(s.high, 1) && s.low == 0:
		return "?"
	case math.IsInf(s.high, 1):
		text = "> " + text
	case s.low == 0 && s.high > 0:
		text = "< " + unit(s.high)
	}
	if s.noisy {
		return "~" + text
	}
	return text
}

// share is the text of a ratio: below 1/2 as a part.
func (s span) share() string { return s.text(part) }

func part(r float64) string {
	if r > 0 && r < 0.5 {
		return "1/" + count(1/r)
	}
	return digits(r)
}

// beside is the text of a ratio of a number to this one, and of both.
func (s span) beside(other span, unit func(float64) string) string {
	r := other.by(s)
	if r.why != "" {
		return "–"
	}
	return fmt.Sprintf("%s (%s, %s)", r.share(), other.text(unit), s.text(unit))
}
