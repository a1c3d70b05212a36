package report

import (
	"fmt"
	"math"
	"strconv"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/measure"
)

// value is one figure of one result. A value that is over is at least its number; a noisy one comes from samples whose halves differ by
// more than measure.Noisy.
type value struct {
	number             float64
	known, over, noisy bool
}

func wait(w measure.Wait) value           { return value{number: float64(w.Seconds), known: true, over: w.Over} }
func number[T ~float64 | ~int](n T) value { return value{number: float64(n), known: true} }

func percentile(s *measure.Samples, p float64) value {
	if s == nil || len(s.Times) == 0 {
		return value{}
	}
	v := wait(s.Percentile(p))
	v.noisy = s.Halves > measure.Noisy
	return v
}

// figure reads a value from a result, and prints it.
type figure struct {
	of   func(*Result) value
	text func(float64) string
}

// have is a figure of a part that may be missing.
func have[P any](part func(*Result) *P, of func(*P) value, text func(float64) string) figure {
	return figure{func(r *Result) value {
		if p := part(r); p != nil {
			return of(p)
		}
		return value{}
	}, text}
}

func start(of func(*Start) value, text func(float64) string) figure {
	return have(func(r *Result) *Start { return r.Start }, of, text)
}

func endpoint(of func(*Changes) value) figure {
	return have(func(r *Result) *Changes { return r.Endpoint }, of, duration)
}

func service(of func(*Changes) value) figure {
	return have(func(r *Result) *Changes { return r.Service }, of, duration)
}

func churn(of func(*Churn) value) figure {
	return have(func(r *Result) *Churn { return r.Churn }, of, duration)
}

func connections(t *Traffic) Paths { return t.Connections }
func requests(t *Traffic) Paths    { return t.Requests }

// rates are requests a second, and slowest what a hundredth of them exceeded: through a Service, and without.
func rates(of func(*Traffic) Paths) []figure {
	return traffic(of, func(p Path) value { return number(p.Rate()) }, count)
}

func slowest(of func(*Traffic) Paths) []figure {
	return traffic(of, func(p Path) value { return number(p.P99) }, duration)
}

func traffic(paths func(*Traffic) Paths, of func(Path) value, text func(float64) string) []figure {
	part := func(r *Result) *Traffic { return r.Traffic }
	return []figure{
		have(part, func(t *Traffic) value { return of(paths(t).Service) }, text),
		have(part, func(t *Traffic) value { return of(paths(t).Direct) }, text),
	}
}

func roll(of func(*Roll) value, text func(float64) string) figure {
	return have(func(r *Result) *Roll { return r.Roll }, of, text)
}

var (
	firstAnswer = start(func(s *Start) value { return wait(s.First) }, duration)
	written     = start(func(s *Start) value { return wait(s.Quiet) }, duration)
	startCPU    = start(func(s *Start) value { return number(s.Cost.CPU()) }, duration)
	unanswered  = start(func(s *Start) value { return value{number: float64(s.Unanswered), known: !s.Last.Over} }, count)
	rss         = start(func(s *Start) value { return number(s.RSS) }, memory)
	idleCPU     = have(func(r *Result) *Idle { return r.Idle }, func(i *Idle) value { return number(i.Cost.CPU() * 30 / i.Length) }, duration)
	changeP50   = endpoint(func(c *Changes) value { return percentile(&c.Samples, 50) })
	changeP99   = endpoint(func(c *Changes) value { return percentile(&c.Samples, 99) })
	changeCPU   = endpoint(func(c *Changes) value { return number(c.CPU) })
	floorP50    = endpoint(func(c *Changes) value { return percentile(c.Floor, 50) })
	floorP99    = endpoint(func(c *Changes) value { return percentile(c.Floor, 99) })
	serviceP50  = service(func(c *Changes) value { return percentile(&c.Samples, 50) })
	serviceP99  = service(func(c *Changes) value { return percentile(&c.Samples, 99) })
	churnP50    = churn(func(c *Churn) value { return percentile(&c.Probes, 50) })
	churnP99    = churn(func(c *Churn) value { return percentile(&c.Probes, 99) })
	rolled      = roll(func(r *Roll) value { return wait(r.Done) }, duration)
	rollFailed  = roll(func(r *Roll) value { return number(r.Failed) }, count)
)

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
