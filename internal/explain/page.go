package explain

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/kube-ipvs/kube-ipvs/internal/agent"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

type page struct{ out *tabwriter.Writer }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p.out, format+"\n", args...) }

// section begins one; its columns are its own.
func (p *page) section(title string, columns ...string) {
	_ = p.out.Flush() // the last flush returns the error
	p.line("\n%s", title)
	if len(columns) > 0 {
		p.line("  %s", strings.Join(columns, "\t"))
	}
}

// The most lines of each part of a summary. Together with headings and blank lines they fit a
// screen of 40 lines.
const (
	mostVerdict   = 6
	mostServices  = 2
	mostFrontends = 8
	mostPorts     = 4
	mostRows      = 2
	mostNamed     = 3
)

func some(all bool, most int) int {
	if all {
		return math.MaxInt
	}
	return most
}

// lines prints the first lines of a list, and how many there are besides.
func (p *page) lines(indent string, list []string, most int) {
	for _, line := range list[:min(len(list), most)] {
		p.line("%s%s", indent, line)
	}
	if more := len(list) - most; more > 0 {
		p.line("%sand %d more", indent, more)
	}
}

// rows prints rows of the kernel of one kind.
func (p *page) rows(what string, groups []Rows, most int) {
	var list []string
	for _, g := range groups {
		for _, row := range g.Rows {
			list = append(list, what+": "+row)
		}
	}
	p.lines("  ", list, most)
}

// usedBy reports which Services have an address, as an endpoint or as an address of their own; nil
// for the name of a Service.
func usedBy(s *agent.Report) (out []string) {
	address := addressOf(s.Asked)
	if !address.IsValid() {
		return nil
	}
	for i := range s.Services {
		one := &s.Services[i]
		var behind, at []string
		for _, f := range one.Frontends {
			switch key, err := model.ParseFrontendKey(f.Key); {
			case err != nil || !f.Asked || f.HeldBy != "" || f.Kind == model.KindDetour.String():
			case key.Addr == address:
				at = append(at, f.Kind+" "+f.Key)
			default:
				behind = append(behind, f.Key)
			}
		}
		if len(behind) > 0 {
			out = append(out, fmt.Sprintf("%s is used by %s, behind %s", s.Asked, one.Name, named(behind)))
		}
		if len(at) > 0 {
			out = append(out, fmt.Sprintf("%s is an address of %s: %s", s.Asked, one.Name, named(at)))
		}
	}
	return out
}

// named lists the first of many names.
func named(all []string) string {
	if more := len(all) - mostNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:mostNamed], ", "), more)
	}
	return strings.Join(all, ", ")
}
