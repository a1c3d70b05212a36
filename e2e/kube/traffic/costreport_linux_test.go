package traffic

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// cost is what one kind of thing took, each time; all but Times and Tools are per change.
type cost struct {
	P50       time.Duration   `json:"p50"`
	Worst     time.Duration   `json:"worst"`
	CPU       time.Duration   `json:"cpu"`
	Bytes     float64         `json:"bytes"`
	Processes float64         `json:"processes"`
	Times     []time.Duration `json:"times"`
	Tools     map[string]int  `json:"tools"`
}

func newCost(took []time.Duration, cpu time.Duration, launched tally) cost {
	n := len(took)
	out := cost{
		CPU: cpu / time.Duration(n), Bytes: float64(launched.Bytes) / float64(n), Processes: float64(launched.Processes) / float64(n),
		Times: took, Tools: launched.Tools,
	}
	out.P50, out.Worst = spread(took)
	return out
}

func (c cost) String() string {
	return fmt.Sprintf("p50 %s, worst %s, CPU %s, %.0f bytes, %.1f processes each; %v",
		c.P50.Round(time.Millisecond), c.Worst.Round(time.Millisecond), c.CPU.Round(time.Millisecond), c.Bytes, c.Processes, c.Tools)
}

// result is what a candidate took.
type result struct {
	Candidate      string `json:"candidate"`
	FirstLoad      cost   `json:"firstLoad"`
	EndpointChange cost   `json:"endpointChange"`
	NewService     cost   `json:"newService"`
}

// phases are the costs by name; the first happens once.
func (r *result) phases() []cost { return []cost{r.FirstLoad, r.EndpointChange, r.NewService} }

var phaseNames = []string{"first load", "one endpoint changes", "one Service comes"}

// costReport compares the first candidate with the others.
type costReport struct {
	Services  int       `json:"services"`
	Endpoints int       `json:"endpointsEach"`
	Backend   string    `json:"backend"`
	Tool      string    `json:"tool"`
	CPUs      int       `json:"cpus"`
	Where     string    `json:"where"`
	Changes   int       `json:"changes"`
	Results   []*result `json:"results"`
}

func newCostReport(t *testing.T, b *costBench) *costReport {
	t.Helper()
	version, err := exec.Command("iptables-"+b.backend, "--version").Output()
	must(t, err)
	return &costReport{
		Services: b.services, Endpoints: b.endpoints, Backend: b.backend, Tool: strings.TrimSpace(string(version)),
		CPUs: runtime.NumCPU(), Where: os.Getenv("KUBE_IPVS_WHERE"), Changes: costChanges,
	}
}

func (r *costReport) add(one *result) { r.Results = append(r.Results, one) }

// keep writes all figures where results go.
func (r *costReport) keep(t *testing.T) {
	t.Helper()
	dir := os.Getenv("KUBE_IPVS_OUT")
	if dir == "" {
		return
	}
	text, err := json.MarshalIndent(r, "", "  ")
	must(t, err)
	name := "iptables-cost.json"
	if r.Backend != "nft" {
		name = "iptables-cost-" + r.Backend + ".json"
	}
	must(t, os.WriteFile(filepath.Join(dir, name), append(text, '\n'), 0o644))
}

// figures are the lines of a phase in the table.
var figures = []struct {
	name string
	of   func(cost) float64
	text func(float64) string
	// several is for phases that have several changes.
	several bool
}{
	{"time (p50)", func(c cost) float64 { return c.P50.Seconds() }, seconds, false},
	{"time, worst", func(c cost) float64 { return c.Worst.Seconds() }, seconds, true},
	{"CPU, agent and tools", func(c cost) float64 { return c.CPU.Seconds() }, seconds, false},
	{"bytes to iptables-restore", func(c cost) float64 { return c.Bytes }, func(v float64) string { return fmt.Sprintf("%.0f", v) }, false},
	{"processes", func(c cost) float64 { return c.Processes }, func(v float64) string { return fmt.Sprintf("%.2f", v) }, false},
	{"of them iptables-restore", cost.restores, func(v float64) string { return fmt.Sprintf("%.2f", v) }, false},
}

// restores is how many of the processes are iptables-restore, of either family.
func (c cost) restores() float64 {
	n := 0
	for name, launched := range c.Tools {
		if strings.HasSuffix(name, "-restore") {
			n += launched
		}
	}
	return float64(n) / float64(len(c.Times))
}

func seconds(v float64) string { return fmt.Sprintf("%.3f s", v) }

// print prints one table: a line for each figure, a column for each candidate, and how many times the first's it is.
func (r *costReport) print() {
	var text strings.Builder
	fmt.Fprintf(&text, "\n%d Services with %d endpoints each, %s, %d CPUs (%s). Changes are %d, each %s after the answer to the one before;\n",
		r.Services, r.Endpoints, r.Tool, r.CPUs, r.Where, r.Changes, costPause)
	text.WriteString("their figures are for one, times from the API server's word that it is written to the first answer. kube-proxy v1.37.2 as deployed has minSyncPeriod 1s, its default; \"no pause\" is 1ms, for 0 means the default.\n\n")
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "\t\t")
	for i, one := range r.Results {
		fmt.Fprint(table, one.Candidate, "\t")
		if i > 0 {
			fmt.Fprint(table, "ratio\t")
		}
	}
	fmt.Fprintln(table)
	for p, phase := range phaseNames {
		for _, f := range figures {
			if f.several && p == 0 {
				continue
			}
			fmt.Fprintf(table, "%s\t%s\t", phase, f.name)
			ours := f.of(r.Results[0].phases()[p])
			fmt.Fprint(table, f.text(ours), "\t")
			for _, one := range r.Results[1:] {
				theirs := f.of(one.phases()[p])
				fmt.Fprintf(table, "%s\t%s\t", f.text(theirs), ratio(theirs, ours))
			}
			fmt.Fprintln(table)
		}
	}
	_ = table.Flush() // to a string
	for line := range strings.Lines(text.String()) {
		fmt.Print("cost: ", line)
	}
}

// ratio is how many times ours theirs is.
func ratio(theirs, ours float64) string {
	if ours == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fx", theirs/ours)
}

// byTheClock is how many processes more a change may seem to take: audits and canaries come by the clock.
const byTheClock = 0.25

// apiWrites are the API writes of one change: a proxy that does not batch may start a process for
// each.
var apiWrites = []float64{0, 1, 2}

// check fails if the first candidate sends fewer bytes than another, or starts fewer processes for
// the first load. It also fails if the candidate starts more processes for a change than the other,
// and more than the change has writes.
func (r *costReport) check(t *testing.T) {
	t.Helper()
	for p, phase := range phaseNames {
		ours := r.Results[0].phases()[p]
		for _, one := range r.Results[1:] {
			theirs := one.phases()[p]
			if ours.Bytes >= theirs.Bytes {
				t.Errorf("%s: %s sends %.0f bytes to iptables-restore, %s %.0f", phase, r.Results[0].Candidate, ours.Bytes, one.Candidate, theirs.Bytes)
			}
			most := max(theirs.Processes, apiWrites[p]) + byTheClock
			if p == 0 {
				most = theirs.Processes - 1
			}
			if ours.Processes > most {
				t.Errorf("%s: %s launches %.2f processes, %s %.2f", phase, r.Results[0].Candidate, ours.Processes, one.Candidate, theirs.Processes)
			}
		}
	}
}
