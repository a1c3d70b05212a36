// Package report makes a table and a picture of cells. It measures nothing and asks nobody: the same cells are the same text.
package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
	"github.com/kube-ipvs/kube-ipvs/e2e/bench/stats"
)

// Baseline is the candidate whose figures are 1.
const Baseline = "kube-proxy-ipvs"

// value is one figure of one cell. One that is not known has no number; one that is over is at least its number.
type value struct {
	number      float64
	known, over bool
	noisy       bool
}

func wait(w cell.Wait) value                  { return value{number: float64(w.Seconds), known: true, over: w.Over} }
func number[T ~float64 | ~int](n T) value     { return value{number: float64(n), known: true} }
func percentile(s cell.Samples, p int) value  { return wait(s.Percentile(float64(p))) }
func change(c *cell.Changes, p int) (v value) { return noisy(c, percentile(c.Samples, p)) }

// noisy marks a figure of samples whose halves differ too much, repeated or not.
func noisy(c *cell.Changes, v value) value {
	v.noisy = c.Halves > cell.Noisy
	return v
}

// figure is one line of the table.
type figure struct {
	part, name string
	of         func(*cell.Cell) value
	text       func(float64) string
}

// figures are all lines, in order.
func figures() []figure {
	var out []figure
	for _, part := range [][]figure{startFigures, idleFigures, changeFigures("one endpoint changes", endpoint), changeFigures("one Service comes", service),
		churnFigures, soakFigures, rollFigures, packetFigures, netlinkFigures} {
		out = append(out, part...)
	}
	return out
}

func endpoint(c *cell.Cell) *cell.Changes { return c.Endpoint.Calmer() }
func service(c *cell.Cell) *cell.Changes  { return c.Service.Calmer() }

// have makes a figure of a part that may be missing.
func have[P any](part func(*cell.Cell) *P, of func(*P) value) func(*cell.Cell) value {
	return func(c *cell.Cell) value {
		if p := part(c); p != nil {
			return of(p)
		}
		return value{}
	}
}

func start(of func(*cell.Start) value) func(*cell.Cell) value {
	return have(func(c *cell.Cell) *cell.Start { return c.Start }, of)
}

var startFigures = []figure{
	{"start", "first Service answers", start(func(s *cell.Start) value { return wait(s.First) }), duration},
	{"start", "API server's Service answers", func(c *cell.Cell) value {
		if c.Start == nil || c.Start.Server == nil {
			return value{}
		}
		return wait(*c.Start.Server)
	}, duration},
	{"start", "all probes answer", start(func(s *cell.Start) value { return wait(s.Last) }), duration},
	{"start", "quiet since", start(func(s *cell.Start) value { return wait(s.Quiet) }), duration},
	{"start", programmed, counted(func(c *cell.Counted) value {
		if c.Programmed == nil {
			return value{}
		}
		return wait(*c.Programmed)
	}), duration},
	{"start", "quiet since, counted", counted(func(c *cell.Counted) value { return wait(c.Quiet) }), duration},
	{"start", "CPU", start(func(s *cell.Start) value { return number(s.Cost.CPU()) }), duration},
	{"start", "of it in the kernel", start(func(s *cell.Start) value { return number(s.Cost.System) }), duration},
	{"start", writing, func(c *cell.Cell) value { return tables(writingOf(c), limited...) }, duration},
	{"start", "the limit of writing its rows", limit(func(l *cell.Limit) value { return number(l.Sum.Wall) }), duration},
	{"start", timesLimit, overLimit(writingOf, limited...), digits},
	{"start", "of it sets, times the limit", overLimit(writingOf, "sets"), digits},
	{"start", "of it IPVS, times the limit", overLimit(writingOf, "ipvs"), digits},
	{"start", "of it addresses, times the limit", overLimit(writingOf, "addresses"), digits},
	{"start", "writing, with nobody asking", func(c *cell.Cell) value { return tables(unaskedWriting(c), limited...) }, duration},
	{"start", unaskedTimes, overLimit(unaskedWriting, limited...), digits},
	{"start", roomsAlone, limit(func(l *cell.Limit) value {
		return value{number: float64(l.Sum.Rooms / l.Sum.Wall), known: l.Sum.Rooms > 0 && l.Sum.Wall > 0}
	}), digits},
	{"start", "processes launched", start(func(s *cell.Start) value { return number(s.Cost.Launches) }), count},
	{"start", "Services without an answer", start(func(s *cell.Start) value { return number(s.Unanswered) }), count},
	{"start", "destinations in IPVS", kernel(func(k *cell.Kernel) value { return value{number: float64(k.Destinations), known: k.Servers > 0} }), count},
	{"start", "RSS after it", start(func(s *cell.Start) value { return number(s.Memory.RSS) }), memory},
	{"start", memoryBound, kernel(func(k *cell.Kernel) value { return value{number: bound(k), known: k.Servers > 0} }), memory},
	{"start", "rules of iptables", kernel(func(k *cell.Kernel) value { return number(k.Rules) }), count},
}

func kernel(of func(*cell.Kernel) value) func(*cell.Cell) value {
	return have(func(c *cell.Cell) *cell.Kernel { return c.Kernel }, of)
}

// programmed is of another start, in which netlink is counted.
const programmed = "last change over netlink, counted"

// counted makes a figure of the start that is counted; what was lost makes it noisy.
func counted(of func(*cell.Counted) value) func(*cell.Cell) value {
	return have(func(c *cell.Cell) *cell.Counted { return c.Counted }, func(c *cell.Counted) value {
		v := of(c)
		v.noisy = c.Dropped > 0
		return v
	})
}

// startTraffic is a figure of one family of netlink, both ways.
func startTraffic(family string, pick func(messages, bytes float64) float64) func(*cell.Cell) value {
	return counted(func(c *cell.Counted) value {
		v, known := c.Traffic[family]
		return value{number: pick(v.Messages+v.FromMessages, v.Bytes+v.FromBytes), known: known}
	})
}

func limit(of func(*cell.Limit) value) func(*cell.Cell) value {
	return have(func(c *cell.Cell) *cell.Limit { return c.Limit }, of)
}

const (
	writing      = "writing sets, IPVS, addresses"
	timesLimit   = "the same, times the limit"
	unaskedTimes = "that, times the limit"
	roomsAlone   = "its rooms alone, times the limit"
)

// limited are the tables that a limit is known for.
var limited = []string{"sets", "ipvs", "addresses"}

// written is how long writing took, by table. It is noisy where something of it was lost.
type written struct {
	took  map[string]cell.Seconds
	noisy bool
}

// writingOf is by the candidate's own clock if it has one, else from the netlink of the start that is counted, which counting makes longer.
func writingOf(c *cell.Cell) written {
	switch {
	case c.Start != nil && len(c.Start.Writing) > 0:
		return written{took: c.Start.Writing}
	case c.Counted != nil:
		return written{c.Counted.Writing, c.Counted.Dropped > 0}
	}
	return written{}
}

// unaskedWriting is that of the starts in which nobody asks.
func unaskedWriting(c *cell.Cell) written {
	if c.Unasked == nil {
		return written{}
	}
	return written{c.Unasked.Writing, c.Unasked.Spread > cell.Noisy}
}

// tables is how long writing some of them took.
func tables(w written, names ...string) value {
	v := value{noisy: w.noisy}
	for _, name := range names {
		one, known := w.took[name]
		v.number += float64(one)
		v.known = v.known || known
	}
	return v
}

// overLimit is how many times the limit writing some tables took.
func overLimit(of func(*cell.Cell) written, names ...string) func(*cell.Cell) value {
	return func(c *cell.Cell) value {
		if c.Limit == nil {
			return value{}
		}
		least := 0.0
		for _, t := range c.Limit.Tables {
			if slices.Contains(names, t.Name) {
				least += float64(t.Wall)
			}
		}
		v := tables(of(c), names...)
		if least == 0 || !v.known {
			return value{}
		}
		v.number /= least
		return v
	}
}

// memoryBound is what the agent may hold with so many destinations.
const memoryBound = "60 MiB + 2.5 KiB for each"

func bound(k *cell.Kernel) float64 { return 60 + 2.5*float64(k.Destinations)/(1<<10) }

func idle(of func(*cell.Idle) value) func(*cell.Cell) value {
	return have(func(c *cell.Cell) *cell.Idle { return c.Idle }, of)
}

var idleFigures = []figure{
	{"idle", "CPU in 30 s", idle(func(i *cell.Idle) value { return number(i.Cost.CPU() * 30 / i.Length) }), duration},
	{"idle", "processes launched in 30 s", idle(func(i *cell.Idle) value { return number(i.Cost.Launches * 30 / float64(i.Length)) }), count},
	{"idle", "machine in softirq in 30 s", idle(func(i *cell.Idle) value { return number(i.Cost.SoftIRQ * 30 / i.Length) }), duration},
	{"idle", "CPU in 30 s, with a repair", idle(repairing), duration},
	{"idle", "lost destination is back", drift(func(d *cell.Drift) value { return wait(d.Back) }), duration},
	{"idle", "period of looking for such", drift(func(d *cell.Drift) value {
		if d.Period == nil {
			return value{}
		}
		return number(*d.Period)
	}), duration},
}

// repairing is the CPU time of rest and of the wait for a repair: a candidate that looks for
// drift more seldom than every 30 s does so once in that time, at least. Of others a rest has that in it.
func repairing(i *cell.Idle) value {
	cpu, length := i.Cost.CPU(), i.Length
	if d := i.Drift; d != nil && d.Cost != nil && d.Length != nil {
		cpu, length = cpu+d.Cost.CPU(), length+*d.Length
	}
	return number(cpu * 30 / length)
}

func drift(of func(*cell.Drift) value) func(*cell.Cell) value {
	return have(func(c *cell.Cell) *cell.Drift {
		if c.Idle == nil {
			return nil
		}
		return c.Idle.Drift
	}, of)
}

// aboveRest is the CPU time of a change without what the candidate would have used in that time at rest.
const aboveRest = "CPU, less that at rest"

func above(c *cell.Cell, changes *cell.Changes) value {
	if changes == nil || changes.Length == 0 || c.Idle == nil || c.Idle.Length == 0 {
		return value{}
	}
	rest := c.Idle.Cost.CPU() / c.Idle.Length * changes.Length
	return noisy(changes, number(max(changes.CPU-rest, 0)))
}

func changeFigures(name string, part func(*cell.Cell) *cell.Changes) []figure {
	return []figure{
		{name, "p50", have(part, func(c *cell.Changes) value { return change(c, 50) }), duration},
		{name, "p90", have(part, func(c *cell.Changes) value { return change(c, 90) }), duration},
		{name, "p99", have(part, func(c *cell.Changes) value { return change(c, 99) }), duration},
		{name, "p50 of a watch alone", have(part, func(c *cell.Changes) value { return told(c.Calmer().Told, 50) }), duration},
		{name, "p99 of a watch alone", have(part, func(c *cell.Changes) value { return told(c.Calmer().Told, 99) }), duration},
		{name, "CPU", have(part, func(c *cell.Changes) value { return noisy(c, number(c.CPU)) }), duration},
		{name, aboveRest, func(c *cell.Cell) value { return above(c, part(c)) }, duration},
		{name, "in the kernel, mean", have(part, func(c *cell.Changes) value { return noisy(c, number(c.Each.System)) }), duration},
		{name, "processes launched", have(part, func(c *cell.Changes) value { return number(c.Launches) }), count},
		{name, "processes launched, mean", have(part, func(c *cell.Changes) value { return number(c.Each.Launches) }), count},
	}
}

// told is what a watch that does nothing else makes of the same changes; no candidate can be faster.
func told(s *cell.Samples, p int) value {
	if s == nil {
		return value{}
	}
	return percentile(*s, p)
}

func churn(of func(*cell.Churn) value) func(*cell.Cell) value {
	return have(func(c *cell.Cell) *cell.Churn { return c.Churn }, of)
}

var churnFigures = []figure{
	{"many endpoints change", "changes a second", churn(func(c *cell.Churn) value { return number(float64(c.Changes) / float64(c.Length)) }), count},
	{"many endpoints change", "a probe, p50", churn(func(c *cell.Churn) value { return percentile(c.Probes, 50) }), duration},
	{"many endpoints change", "a probe, p99", churn(func(c *cell.Churn) value { return percentile(c.Probes, 99) }), duration},
	{"many endpoints change", "p50 of a watch alone", churn(func(c *cell.Churn) value { return told(c.Told, 50) }), duration},
	{"many endpoints change", "p99 of a watch alone", churn(func(c *cell.Churn) value { return told(c.Told, 99) }), duration},
	{"many endpoints change", "p99, times that when quiet", calmRatio, count},
	{"many endpoints change", "median, second half to first", churn(growth), count},
	{"many endpoints change", "quiet after the last", churn(func(c *cell.Churn) value { return wait(c.CatchUp) }), duration},
	{"many endpoints change", "CPU a change", churn(func(c *cell.Churn) value { return number(c.Each.CPU()) }), duration},
	{"many endpoints change", "processes launched a change", churn(func(c *cell.Churn) value { return number(c.Each.Launches) }), count},
	{"many endpoints change", "RSS after it", churn(func(c *cell.Churn) value { return number(c.Memory.RSS) }), memory},
	{"many endpoints change", "most RSS ever", churn(func(c *cell.Churn) value { return number(c.Memory.Peak) }), memory},
}

// growth is above 1 where changes queue up.
func growth(c *cell.Churn) value {
	times := make([]float64, len(c.Probes.Times))
	for i, t := range c.Probes.Times {
		times[i] = float64(t)
	}
	g := stats.Growth(times)
	return value{number: g, known: g > 0}
}

// calmRatio compares a probe among other changes with one that is alone.
func calmRatio(c *cell.Cell) value {
	if c.Churn == nil || c.Endpoint == nil || len(c.Churn.Probes.Times) == 0 {
		return value{}
	}
	calm, busy := endpoint(c).Percentile(99), c.Churn.Probes.Percentile(99)
	if calm.Seconds == 0 || calm.Over {
		return value{}
	}
	return noisy(endpoint(c), value{number: float64(busy.Seconds / calm.Seconds), known: true, over: busy.Over})
}

func soak(of func(*cell.Soak) value) func(*cell.Cell) value {
	return have(func(c *cell.Cell) *cell.Soak { return c.Soak }, of)
}

// tenth is one of the two that show whether memory grows.
func tenth(pick func(first, last float64) float64) func(*cell.Cell) value {
	return soak(func(s *cell.Soak) value {
		first, last, known := s.Tenths()
		if !known || first == 0 {
			return value{}
		}
		return number(pick(first, last))
	})
}

var soakFigures = []figure{
	{"very many endpoints change", "changes", soak(func(s *cell.Soak) value { return number(s.Changes) }), count},
	{"very many endpoints change", "in", soak(func(s *cell.Soak) value { return number(s.Length) }), duration},
	{"very many endpoints change", "RSS after the first tenth", tenth(func(first, _ float64) float64 { return first }), memory},
	{"very many endpoints change", "RSS in the last tenth", tenth(func(_, last float64) float64 { return last }), memory},
	{"very many endpoints change", tenths, tenth(func(first, last float64) float64 { return last / first }), digits},
}

const tenths = "RSS, last tenth to first"

func roll(of func(*cell.Roll) value) func(*cell.Cell) value {
	return have(func(c *cell.Cell) *cell.Roll { return c.Roll }, of)
}

var rollFigures = []figure{
	{"all endpoints of one change", "after the last write", roll(func(r *cell.Roll) value { return wait(r.Done) }), duration},
	{"all endpoints of one change", "CPU", roll(func(r *cell.Roll) value { return number(r.Cost.CPU()) }), duration},
	{"all endpoints of one change", "processes launched", roll(func(r *cell.Roll) value { return number(r.Cost.Launches) }), count},
	{"all endpoints of one change", "connections that failed", roll(func(r *cell.Roll) value { return number(r.Failed) }), count},
}

func packets(of func(*cell.Packets) cell.Speed) func(*cell.Cell) value {
	return have(func(c *cell.Cell) *cell.Packets { return c.Packets }, func(p *cell.Packets) value {
		s := of(p)
		return value{number: s.Median, known: true, noisy: s.Spread > cell.Noisy}
	})
}

var packetFigures = []figure{
	{"data plane", "connections a second", packets(func(p *cell.Packets) cell.Speed { return p.Rate }), count},
	{"data plane", "the same without a proxy", packets(func(p *cell.Packets) cell.Speed { return p.RateDirect }), count},
	{"data plane", "requests a second, one connection", packets(func(p *cell.Packets) cell.Speed { return p.Request }), count},
	{"data plane", "the same without a proxy", packets(func(p *cell.Packets) cell.Speed { return p.RequestDirect }), count},
}

func netlink(traffic func(*cell.Netlink) cell.Traffic, pick func(messages, bytes float64) float64) func(*cell.Cell) value {
	return have(func(c *cell.Cell) *cell.Netlink { return c.Netlink }, func(n *cell.Netlink) value { return number(pick(traffic(n).Sum())) })
}

func messages(m, _ float64) float64 { return m }
func bytes(_, b float64) float64    { return b }

var netlinkFigures = []figure{
	{"netlink", "messages, start", counted(func(c *cell.Counted) value { return number(messages(c.Traffic.Sum())) }), count},
	{"netlink", "messages, start: IPVS", startTraffic("NETLINK_GENERIC", messages), count},
	{"netlink", "messages, start: sets and rules", startTraffic("NETLINK_NETFILTER", messages), count},
	{"netlink", "messages, start: addresses", startTraffic("NETLINK_ROUTE", messages), count},
	{"netlink", "bytes, start", counted(func(c *cell.Counted) value { return number(bytes(c.Traffic.Sum())) }), count},
	{"netlink", "bytes, start: IPVS", startTraffic("NETLINK_GENERIC", bytes), count},
	{"netlink", "bytes, start: sets and rules", startTraffic("NETLINK_NETFILTER", bytes), count},
	{"netlink", "bytes, start: addresses", startTraffic("NETLINK_ROUTE", bytes), count},
	{"netlink", "messages, one endpoint", netlink(func(n *cell.Netlink) cell.Traffic { return n.Change }, messages), count},
	{"netlink", "bytes, one endpoint", netlink(func(n *cell.Netlink) cell.Traffic { return n.Change }, bytes), count},
	{"netlink", "messages, one Service", netlink(func(n *cell.Netlink) cell.Traffic { return n.Service }, messages), count},
	{"netlink", "bytes, one Service", netlink(func(n *cell.Netlink) cell.Traffic { return n.Service }, bytes), count},
	{"netlink", "bytes, idle", netlink(func(n *cell.Netlink) cell.Traffic { return n.Idle }, bytes), count},
}

// duration prints seconds with three digits that count, in the unit that fits.
func duration(s float64) string {
	switch {
	case s == 0:
		return "0"
	case s < 1e-3:
		return digits(s*1e6) + " µs"
	case s < 1:
		return digits(s*1e3) + " ms"
	case s < 120:
		return digits(s) + " s"
	default:
		return digits(s/60) + " min"
	}
}

func memory(mib float64) string { return digits(mib) + " MiB" }

// count prints a number; large ones with their thousands apart.
func count(n float64) string {
	if n < 1000 {
		return digits(n)
	}
	text := fmt.Sprintf("%.0f", n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// digits prints a number with at most three digits that count; two where it is very small, as ratios are.
func digits(n float64) string {
	switch {
	case n == float64(int64(n)) && n < 1e6:
		return fmt.Sprintf("%.0f", n)
	case n > 0 && n < 1e-3:
		return strconv.FormatFloat(n, 'f', 1-int(math.Floor(math.Log10(n))), 64)
	case n < 9.995:
		return strconv.FormatFloat(n, 'g', 3, 64)
	case n < 99.95:
		return fmt.Sprintf("%.1f", n)
	default:
		return fmt.Sprintf("%.0f", n)
	}
}
