package picture

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "draw the pictures again")

// sources are the diagrams, without their extension.
var sources = []string{"../../internal/architecture", "../../manifests/docs/packet"}

func TestPicturesAreDrawn(t *testing.T) {
	for _, base := range sources {
		text, err := os.ReadFile(filepath.Clean(base + ".txt"))
		if err != nil {
			t.Fatal(err)
		}
		want, err := draw(string(text))
		if err != nil {
			t.Fatalf("%s.txt: %v", base, err)
		}
		for dec := xml.NewDecoder(strings.NewReader(want)); ; {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s.svg: %v", base, err)
			}
		}
		if *update {
			if err := os.WriteFile(base+".svg", []byte(want), 0o644); err != nil { //nolint:gosec // as readable as the page
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(filepath.Clean(base + ".svg"))
		if err != nil || string(got) != want {
			t.Errorf("%s.svg is not what %s.txt draws, error %v: go test ./e2e/picture -update", base, base, err)
		}
	}
}

func TestMistakesOfADiagram(t *testing.T) {
	for text, want := range map[string]string{
		"box a 0 0 A\narrow a b":       "line 2: no box b",
		"box a 0 0 A\nbox a 1 0 B":     "line 2: box a twice",
		"circle a":                     "line 1: no word circle",
		"box a x 0 A":                  "line 1: box NAME COLUMN ROW TEXT",
		"box a 0 0 A\narrow a":         "line 2: arrow FROM TO TEXT",
		"box a 0 0 A\narrow a a words": "line 2: an arrow from a to itself",
	} {
		if _, err := draw(text); err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
}

// box is a cell of the grid with lines of text; the first one is the title.
type box struct {
	column, row int
	lines       []string
	dashed      bool
}

// diagram is the contents of a text file.
type diagram struct {
	width, height int // of a cell
	boxes         map[string]box
	order         []string
	arrows        []string // SVG
}

// gap is the space between two cells, where arrows are.
const gap = 40

// draw makes an SVG of a diagram.
func draw(text string) (string, error) {
	d := diagram{width: 150, height: 96, boxes: map[string]box{}}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := d.add(line); err != nil {
			return "", fmt.Errorf("line %d: %w", n, err)
		}
	}
	return d.svg(), nil
}

// add reads one line.
func (d *diagram) add(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "grid":
		_, err := fmt.Sscanf(rest, "%d %d", &d.width, &d.height)
		return err
	case "box":
		return d.addBox(rest)
	case "arrow", "both":
		return d.addArrow(word, rest)
	}
	return fmt.Errorf("no word %s", word)
}

func (d *diagram) addBox(rest string) error {
	var name string
	var b box
	if _, err := fmt.Sscanf(rest, "%s %d %d", &name, &b.column, &b.row); err != nil {
		return fmt.Errorf("box NAME COLUMN ROW TEXT") //nolint:perfsprint // one style
	}
	if _, twice := d.boxes[name]; twice {
		return fmt.Errorf("box %s twice", name)
	}
	text := strings.Join(strings.Fields(rest)[3:], " ")
	text, b.dashed = strings.CutSuffix(text, " dashed")
	b.lines = strings.Split(text, " / ")
	d.boxes[name] = b
	d.order = append(d.order, name)
	return nil
}

func (d *diagram) addArrow(word, rest string) error {
	f := strings.Fields(rest)
	if len(f) < 2 {
		return fmt.Errorf("%s FROM TO TEXT", word)
	}
	for _, name := range f[:2] {
		if _, known := d.boxes[name]; !known {
			return fmt.Errorf("no box %s", name)
		}
	}
	if f[0] == f[1] {
		return fmt.Errorf("an %s from %s to itself", word, f[0])
	}
	x1, y1, x2, y2 := d.ends(d.boxes[f[0]], d.boxes[f[1]])
	out := fmt.Sprintf("<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", x1, y1, x2, y2) + tip(x1, y1, x2, y2)
	if word == "both" {
		out += tip(x2, y2, x1, y1)
	}
	if label := strings.Join(f[2:], " "); label != "" {
		at, anchor := (x1+x2)/2, "middle"
		up := 6
		if x1 == x2 {
			at, anchor, up = at+6, "start", -4
		}
		out += fmt.Sprintf("<text class=\"small\" x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", at, (y1+y2)/2-up, anchor, html.EscapeString(label))
	}
	d.arrows = append(d.arrows, out)
	return nil
}

// tip is the head of an arrow that comes from x1, y1.
func tip(x1, y1, x2, y2 int) string {
	dx, dy := float64(x2-x1), float64(y2-y1)
	length := math.Hypot(dx, dy)
	dx, dy = 9*dx/length, 9*dy/length
	x, y := float64(x2)-dx, float64(y2)-dy
	return fmt.Sprintf("<path d=\"M%d %dL%.1f %.1fL%.1f %.1fz\"/>\n", x2, y2, x-dy/2, y+dx/2, x+dy/2, y-dx/2)
}

func (d *diagram) corner(b box) (x, y int) {
	return gap/2 + b.column*(d.width+gap), gap/2 + b.row*(d.height+gap)
}

// ends are the points on the edges of two boxes between which an arrow goes.
func (d *diagram) ends(from, to box) (x1, y1, x2, y2 int) {
	fx, fy := d.corner(from)
	tx, ty := d.corner(to)
	x1, y1, x2, y2 = fx+d.width/2, fy+d.height/2, tx+d.width/2, ty+d.height/2
	const space = 3
	switch {
	case from.column < to.column:
		x1, x2 = fx+d.width+space, tx-space
	case from.column > to.column:
		x1, x2 = fx-space, tx+d.width+space
	case from.row < to.row:
		y1, y2 = fy+d.height+space, ty-space
	default:
		y1, y2 = fy-space, ty+d.height+space
	}
	return x1, y1, x2, y2
}

const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" font-family="sans-serif" font-size="13">
<style>
rect { fill: #eef3fb; stroke: #3b5b92; }
.dashed { fill: none; stroke-dasharray: 5 4; }
line { stroke: #444; stroke-width: 1.5; }
path { fill: #444; }
text { fill: #1b1b1b; }
.title { font-weight: bold; }
.small { font-size: 11px; fill: #444; }
@media (prefers-color-scheme: dark) {
 rect { fill: #1d2a40; stroke: #8fb0e6; }
 .dashed { fill: none; }
 line { stroke: #bbb; } path { fill: #bbb; } text { fill: #eee; } .small { fill: #bbb; }
}
</style>
`

func (d *diagram) svg() string {
	var body strings.Builder
	right, bottom := 0, 0
	for _, name := range d.order {
		b := d.boxes[name]
		x, y := d.corner(b)
		right, bottom = max(right, x+d.width), max(bottom, y+d.height)
		class := ""
		if b.dashed {
			class = ` class="dashed"`
		}
		fmt.Fprintf(&body, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\"%s/>\n", x, y, d.width, d.height, class)
		top := y + d.height/2 - (len(b.lines)-1)*8 + 4
		for i, line := range b.lines {
			class = "small"
			if i == 0 {
				class = "title"
			}
			fmt.Fprintf(&body, "<text class=\"%s\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", class, x+d.width/2, top+16*i, html.EscapeString(line))
		}
	}
	return fmt.Sprintf(head, right+gap/2, bottom+gap/2) + body.String() + strings.Join(d.arrows, "") + "</svg>\n"
}
