package load_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/backend"
	"github.com/kube-ipvs/kube-ipvs/e2e/load"
)

func TestPrint(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	refused := errors.New("connect from 10.0.0.1:40000 to 10.96.0.1:80: connection refused")
	r := load.Report{
		Began: began, Took: 2 * time.Second, Started: 10, OK: 8, Failed: map[backend.Failure]int{backend.Refused: 2}, NoPort: 1,
		First:    map[backend.Failure]load.Incident{backend.Refused: {At: began.Add(1500 * time.Millisecond), Err: refused}},
		Backends: map[string]int{"web-2": 5, "web-1": 3}, Late: 3 * time.Millisecond,
		Series: []load.Second{{Started: 5, OK: 5, Worst: 20 * time.Millisecond}, {Started: 5, OK: 3, Failed: 2, Worst: 30 * time.Millisecond}},
		Long: load.Long{
			Opened: 2, Alive: 1, Answers: 6, Failed: map[backend.Failure]int{backend.Reset: 1, backend.Timeout: 1},
			Conns: []load.Conn{
				{Backend: "web-1", Answers: 4},
				{Backend: "web-2", Answers: 2, Failure: backend.Reset, Cut: load.Incident{At: began.Add(time.Second), Err: errors.New("connection reset by peer")}},
				{Failure: backend.Timeout, Cut: load.Incident{At: began.Add(time.Millisecond), Err: errors.New("i/o timeout")}},
			},
		},
	}
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := `10 new connections in 2s (5 a second, at most 3ms late), 8 answered, 2 failed; the longest took 30ms
  1 not started: no source port was free
  2 refused, the first after 1.5s: connect from 10.0.0.1:40000 to 10.96.0.1:80: connection refused
  second 1: 5 started, 3 answered, 2 failed, the longest 30ms
  backend web-1 3
  backend web-2 5
2 long connections opened, 1 alive, 2 cut, 6 requests answered
  timeout on no backend after 1ms and 0 answers: i/o timeout
  reset on web-2 after 1s and 2 answers: connection reset by peer
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("print (-want +got):\n%s", diff)
	}
}

func TestStartRefuses(t *testing.T) {
	good := load.Profile{To: netip.MustParseAddrPort("127.0.0.1:80"), New: 1, Long: 1, Every: time.Second, Timeout: time.Second}
	for name, spoil := range map[string]func(*load.Profile){
		"no address":         func(p *load.Profile) { p.To = netip.AddrPort{} },
		"no port":            func(p *load.Profile) { p.To = netip.MustParseAddrPort("127.0.0.1:0") },
		"mixed families":     func(p *load.Profile) { p.Sources = []netip.Addr{netip.IPv6Loopback()} },
		"ports from nothing": func(p *load.Profile) { p.Ports.Last = 5 },
		"ports backwards":    func(p *load.Profile) { p.Ports = load.Ports{First: 9, Last: 8} },
		"nothing to do":      func(p *load.Profile) { p.New, p.Long = 0, 0 },
		"negative rate":      func(p *load.Profile) { p.New = -1 },
		"no timeout":         func(p *load.Profile) { p.Timeout = 0 },
		"no pause":           func(p *load.Profile) { p.Every = 0 },
	} {
		p := good
		spoil(&p)
		if run, err := load.Start(t.Context(), p); err == nil {
			_, _ = run.Stop()
			t.Errorf("%s: it runs", name)
		}
	}
}
