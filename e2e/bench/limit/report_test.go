package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func aReport() report {
	r := report{
		Runs: 3,
		Rows: counts{Servers: 1000, Destinations: 10_000, Sets: 1, Entries: 1000, Addresses: 1000},
		Tables: []table{
			{Name: "ipvs", Rows: 11_000, Messages: 11_000, Sends: 22, Bytes: 1 << 20, Packing: 0.01, Wall: 0.3, CPU: 0.25, Rooms: 0.36},
			{Name: "addresses", Rows: 1000, Messages: 1000, Sends: 2, Bytes: 40 << 10, Packing: 0.001, Wall: 0.1, CPU: 0.05, Rooms: 0.14},
		},
	}
	r.Sum = sum(r.Tables)
	return r
}

func TestReport(t *testing.T) {
	r := aReport()
	r.compare(2 * time.Second)
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	want := `1000 virtual servers with 10000 destinations, 1 sets with 1000 entries, 1000 addresses; the fastest of 3

      table   rows  messages  sends   KiB  packing ms  wall ms  CPU ms  µs a row  rooms ms  times
       ipvs  11000     11000     22  1024        10.0    300.0   250.0     27.27     360.0   1.20
  addresses   1000      1000      2    40         1.0    100.0    50.0    100.00     140.0   1.40
        sum  12000     12000     24  1064        11.0    400.0   300.0     33.33     500.0   1.25

2 s is 5.0 times that.
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestTheFastestRunIsTold(t *testing.T) {
	var r report
	for i, wall := range []seconds{2, 1, 3} {
		r.take([]table{{Name: "ipvs", Wall: wall / 2}, {Name: "addresses", Wall: wall / 2}})
		r.takeRooms(map[string]seconds{"ipvs": []seconds{4, 6, 5}[i], "addresses": []seconds{9, 8, 7}[i]})
	}
	if r.Sum.Wall != 1 || r.Tables[0].Wall != 0.5 || r.Tables[0].Rooms != 4 || r.Sum.Rooms != 4+7 {
		t.Errorf("%+v", r)
	}
}

// Where the rooms were not asked for a table, they have no sum and no column to read.
func TestRoomsThatWereNotAsked(t *testing.T) {
	r := aReport()
	r.Tables[1].Rooms = 0
	r.Sum = sum(r.Tables)
	var out strings.Builder
	if err := r.print(&out); err != nil || r.Sum.Rooms != 0 || strings.Count(out.String(), " -      -\n") != 2 {
		t.Errorf("%v, %+v, printed:\n%s", err, r.Sum, &out)
	}
}

func TestReportIsReadAgain(t *testing.T) {
	want := aReport()
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if strings.Contains(string(text), `"times"`) {
		t.Errorf("a multiple of nothing: %s", text)
	}
}
