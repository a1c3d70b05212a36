package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxFailureLines limits what is kept of a failed test's output.
const maxFailureLines = 80

var (
	ended   = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \((\d+\.\d+)s\)`)
	begun   = regexp.MustCompile(`^=== (RUN|CONT|NAME|PAUSE)\s+(\S+)`)
	said    = regexp.MustCompile(`^\s+[A-Za-z0-9_]+\.go:\d+: (.*)`)
	pkgOver = regexp.MustCompile(`^(ok  |FAIL)\t(\S+)(?:\t(\d+\.\d+)s|\t\(cached\))?`)
	noTests = regexp.MustCompile(`^\?\s+\S+\s+\[no test files\]`)
	item    = regexp.MustCompile(`^=== (ITEM|DONE) (\S+)(?: (\d+))?`)
)

// A parser turns the output of go test -v, or of a test binary, into results. One parser reads one stream.
type parser struct {
	lineWriter
	to     *recorder
	lane   string
	prefix string            // "package:" of the results to come
	test   string            // the test that prints
	reason map[string]string // test -> the last line that it logged
	kept   []string          // lines since the last test of the top level
	batch  []result          // of the package that runs, until its name is known
	byPkg  bool              // results get their package's name when it ends
	unit   string            // of the queue, which runs
	bad    bool              // that unit has a failed test
	since  time.Time         // when that unit began
}

// newParser returns a parser for one stream of output. With byPackage the stream is that of go test over several packages.
func newParser(to *recorder, lane string, byPackage bool) *parser {
	p := &parser{to: to, lane: lane, byPkg: byPackage, reason: map[string]string{}}
	p.each = p.line
	return p
}

func (p *parser) line(line string) {
	fmt.Fprintln(p.to, line)
	switch {
	case item.MatchString(line):
		p.item(item.FindStringSubmatch(line))
		return
	case pkgOver.MatchString(line):
		p.pkg(pkgOver.FindStringSubmatch(line))
		return
	case noTests.MatchString(line):
		p.to.finishUnit()
		return
	case begun.MatchString(line):
		p.test = begun.FindStringSubmatch(line)[2]
		if top, _, _ := strings.Cut(p.test, "/"); !p.byPkg && strings.HasPrefix(line, "=== RUN") {
			p.to.running(p.lane, top)
		}
		return
	}
	if m := ended.FindStringSubmatch(line); m != nil {
		p.end(m, line)
		return
	}
	if strings.Contains(line, "WARNING: DATA RACE") {
		p.to.raced()
	}
	if line == "testing: warning: no tests to run" && !p.byPkg {
		p.bad = true
		p.to.add(result{name: p.prefix, outcome: fail, output: []string{"no test matches the pattern of this unit"}})
	}
	if m := said.FindStringSubmatch(line); m != nil {
		p.reason[p.test] = m[1]
	}
	p.keep(line)
}

// keep stores a line for the report of a failure.
func (p *parser) keep(line string) {
	p.kept = append(p.kept, line)
	if len(p.kept) > 4*maxFailureLines {
		p.kept = append([]string(nil), p.kept[len(p.kept)-maxFailureLines:]...)
	}
}

// item notes that a guest has begun or ended a unit of the queue. A unit that failed without a failed test has a result of its own.
func (p *parser) item(m []string) {
	if m[1] == "ITEM" {
		p.unit, p.prefix, p.kept, p.bad, p.since = m[2], prefixOf(m[2]), nil, false, time.Now()
		p.to.running(p.lane, m[2])
		return
	}
	if m[3] != "0" && !p.bad {
		p.to.add(result{name: m[2], outcome: fail, took: time.Since(p.since), output: tail(p.kept)})
	}
	if m[3] != "0" || p.bad {
		p.to.unitFailed(m[2])
	}
	p.unit = ""
	p.to.timed(m[2], time.Since(p.since))
	p.to.running(p.lane, "")
	p.to.finishUnit()
}

// prefixOf returns the part of a queue item's name that its results carry: "packet:" of packet:TestLimits.
func prefixOf(name string) string {
	if i := strings.LastIndex(name, ":"); i >= 0 {
		return name[:i+1]
	}
	return ""
}

// end records a test.
func (p *parser) end(m []string, line string) {
	secs, _ := strconv.ParseFloat(m[3], 64)
	res := result{name: p.prefix + m[2], outcome: outcome(m[1]), took: time.Duration(secs * float64(time.Second))}
	switch res.outcome {
	case skip:
		res.reason = p.reason[m[2]]
	case fail:
		p.bad = true
		p.keep(line)
		if !strings.HasPrefix(line, " ") {
			res.output = tail(p.kept)
		}
	}
	if !strings.HasPrefix(line, " ") && res.outcome != fail {
		p.kept = nil
	}
	if p.byPkg {
		p.batch = append(p.batch, res)
		return
	}
	p.to.add(res)
}

// pkg records the results of a package, which ends with this line. A package that failed without a failed test has a result of its own.
func (p *parser) pkg(m []string) {
	name := shortPackage(m[2])
	bad := false
	for _, res := range p.batch {
		res.name = name + ":" + res.name
		bad = bad || res.outcome == fail
		p.to.add(res)
	}
	if m[1] == "FAIL" {
		if !bad {
			p.to.add(result{name: name + ":", outcome: fail, output: tail(p.kept)})
		}
		p.to.packageFailed(name)
	}
	p.batch, p.kept = nil, nil
	p.to.finishUnit()
	if secs, err := strconv.ParseFloat(m[3], 64); err == nil {
		p.to.timed(name, time.Duration(secs*float64(time.Second)))
	}
	p.to.say("%s", name)
}

// shortPackage cuts the module off a package's path.
func shortPackage(path string) string { return strings.TrimPrefix(path, module+"/") }

// tail returns what is kept of a failed test's output.
func tail(lines []string) []string {
	return append([]string(nil), lines[max(0, len(lines)-maxFailureLines):]...)
}
