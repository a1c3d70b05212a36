package report

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// Bars writes a picture (SVG) with a panel for each of a few figures. A panel has a group of bars
// for each number of Services, and a bar for each candidate, all on logarithmic scales. A bar that
// the limit cut short ends in a dotted line.
func Bars(w io.Writer, results []*Result) error {
	groups := byServices(results)
	p := &picture{groups: groups, candidates: candidatesOf(results)}
	panels := p.panels()
	rows := (len(panels) + 1) / 2
	height := top + rows*panelHeight + margin
	p.print(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="12">`, width, height, width, height)
	p.print(`<rect width="%d" height="%d" rx="8" fill="#ffffff"/>`, width, height)
	p.legend()
	for i, f := range panels {
		p.panel(f, margin+(i%2)*(panelWidth+margin), top+(i/2)*panelHeight)
	}
	p.print(`</svg>`)
	_, err := io.WriteString(w, p.text.String())
	return err
}

// Sizes in the picture's units.
const (
	margin      = 24
	panelWidth  = 420
	panelHeight = 230
	width       = 2*panelWidth + 3*margin
	top         = 56
	plotHeight  = 150
	axis        = 52 // left of a panel's bars, for the numbers of the scale
)

// colours of candidates in their order; they differ in lightness as well as in hue.
var colours = []string{"#0b6e4f", "#c1440e", "#e8a33d", "#6c8ebf", "#7a5195", "#555555", "#b0b0b0"}

type picture struct {
	text       strings.Builder
	groups     [][]*Result
	candidates []string
}

func (p *picture) print(format string, args ...any) { fmt.Fprintf(&p.text, format+"\n", args...) }

func candidatesOf(results []*Result) []string {
	var out []string
	for _, c := range results {
		if !slices.Contains(out, c.Candidate) {
			out = append(out, c.Candidate)
		}
	}
	return out
}

// drawn are the panels of the picture.
var drawn = []panel{
	{"One endpoint changes: until it answers (p50)", changeP50},
	{"One endpoint changes: CPU time", changeCPU},
	{"Start: until everything is written", written},
	{"Start: CPU time", startCPU},
	{"50 changes a second: until one answers (p99)", churnP99},
	{"Idle for 30 s: CPU time", idleCPU},
}

// panel is a figure with the title of its bars.
type panel struct {
	title string
	figure
}

// panels are those of the drawn figures that some result knows.
func (p *picture) panels() []panel {
	return slices.DeleteFunc(slices.Clone(drawn), func(d panel) bool { return !p.known(d.figure) })
}

func (p *picture) known(f figure) bool {
	_, _, ok := p.reach(f)
	return ok
}

// reach are the powers of ten below and above all values of a figure.
func (p *picture) reach(f figure) (low, high int, ok bool) {
	low, high = math.MaxInt, math.MinInt
	for _, group := range p.groups {
		for _, c := range group {
			if v := f.of(c); v.known && v.number > 0 {
				low, high, ok = min(low, int(math.Floor(math.Log10(v.number)))), max(high, int(math.Ceil(math.Log10(v.number)))), true
			}
		}
	}
	return low, max(high, low+1), ok
}

func (p *picture) legend() {
	x := margin
	for i, name := range p.candidates {
		p.print(`<rect x="%d" y="20" width="12" height="12" fill="%s"/><text x="%d" y="31" fill="#222222">%s</text>`, x, colour(i), x+18, html.EscapeString(name))
		x += 42 + 7*len(name)
	}
}

func colour(i int) string { return colours[i%len(colours)] }

// panel draws one figure with its upper left corner at x, y.
func (p *picture) panel(f panel, x, y int) {
	low, high, _ := p.reach(f.figure)
	p.print(`<text x="%d" y="%d" fill="#222222" font-weight="600">%s</text>`, x, y+14, html.EscapeString(f.title))
	floor := y + 28 + plotHeight
	for power := low; power <= high; power++ {
		line := floor - plotHeight*(power-low)/(high-low)
		p.print(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#dddddd"/><text x="%d" y="%d" text-anchor="end" fill="#666666">%s</text>`,
			x+axis, line, x+panelWidth, line, x+axis-6, line+4, html.EscapeString(f.text(math.Pow(10, float64(power)))))
	}
	room := (panelWidth - axis) / len(p.groups)
	thick := min((room-12)/max(len(p.candidates), 1), 40)
	for g, group := range p.groups {
		left := x + axis + g*room + (room-thick*len(p.candidates))/2
		for _, c := range group {
			i := slices.Index(p.candidates, c.Candidate)
			if v := f.of(c); v.known {
				p.bar(f.text, v, colour(i), left+i*thick, floor, thick-2, func(n float64) float64 {
					return plotHeight * (math.Log10(n) - float64(low)) / float64(high-low)
				})
			}
		}
		p.print(`<text x="%d" y="%d" text-anchor="middle" fill="#444444">%s Services</text>`, x+axis+g*room+room/2, floor+16, count(float64(group[0].Services)))
	}
}

// bar draws one value; 0, which has no place on the scale, is a line on the floor.
func (p *picture) bar(text func(float64) string, v value, fill string, x, floor, thick int, scale func(float64) float64) {
	height, label := 1.0, text(v.number)
	if v.number > 0 {
		height = max(scale(v.number), 1)
	}
	if v.over {
		label = "> " + label
		p.print(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s" stroke-width="2" stroke-dasharray="2 3"/>`, x+thick/2, float64(floor)-height, x+thick/2, float64(floor)-height-12, fill)
	}
	p.print(`<rect x="%d" y="%.1f" width="%d" height="%.1f" fill="%s"><title>%s</title></rect>`, x, float64(floor)-height, max(thick, 1), height, fill, html.EscapeString(label))
	if thick >= 30 {
		p.print(`<text x="%d" y="%.1f" text-anchor="middle" font-size="9" fill="#222222">%s</text>`, x+thick/2, float64(floor)-height-3, html.EscapeString(label))
	}
}
