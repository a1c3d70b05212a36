package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// seconds is a time in the report.
type seconds float64

func toSeconds(d time.Duration) seconds { return seconds(d.Seconds()) }

// table is what writing one table took.
type table struct {
	Name     string  `json:"name"`
	Rows     int     `json:"rows"`
	Messages int     `json:"messages"`
	Sends    int     `json:"sends"`
	Bytes    int     `json:"bytes"`
	Packing  seconds `json:"packing"` // before the first send
	Wall     seconds `json:"wall"`    // from the first send to the last answer
	CPU      seconds `json:"cpu"`     // of this process, in the kernel too
	// Rooms is what the agent's rooms take for the same rows, nothing else going on; the fastest run, 0 where they were not asked.
	Rooms seconds `json:"rooms,omitempty"`
}

// sum adds tables up.
func sum(tables []table) table {
	all := table{Name: "sum"}
	for _, t := range tables {
		all.Rows += t.Rows
		all.Messages += t.Messages
		all.Sends += t.Sends
		all.Bytes += t.Bytes
		all.Packing += t.Packing
		all.Wall += t.Wall
		all.CPU += t.CPU
	}
	for _, t := range tables {
		if t.Rooms == 0 {
			return all // of a part of the tables there is no sum
		}
	}
	for _, t := range tables {
		all.Rooms += t.Rooms
	}
	return all
}

// report is what is printed. All times are seconds.
type report struct {
	Rows   counts  `json:"rows"`
	Runs   int     `json:"runs"` // the fastest of so many is told
	Tables []table `json:"tables"`
	Sum    table   `json:"sum"`
	Took   seconds `json:"took,omitempty"`  // of an agent, as it was given
	Times  float64 `json:"times,omitempty"` // Took by the sum's wall time
}

// byRooms are the two columns of the agent's rooms.
func (t table) byRooms() string {
	if t.Rooms == 0 || t.Wall == 0 {
		return "-\t-"
	}
	return fmt.Sprintf("%.1f\t%.2f", t.Rooms*1e3, t.Rooms/t.Wall)
}

// take keeps the tables of a run if it was the fastest so far.
func (r *report) take(tables []table) {
	if all := sum(tables); r.Tables != nil && all.Wall >= r.Sum.Wall {
		return
	}
	rooms := r.byRooms()
	r.Tables = tables
	r.takeRooms(rooms)
}

// takeRooms keeps the times of the agent's rooms that are the fastest so far, by table.
func (r *report) takeRooms(took map[string]seconds) {
	for i, t := range r.Tables {
		if now := took[t.Name]; now > 0 && (t.Rooms == 0 || now < t.Rooms) {
			r.Tables[i].Rooms = now
		}
	}
	r.Sum = sum(r.Tables)
}

func (r *report) byRooms() map[string]seconds {
	took := map[string]seconds{}
	for _, t := range r.Tables {
		took[t.Name] = t.Rooms
	}
	return took
}

// compare fills in how many times the limit an agent took.
func (r *report) compare(took time.Duration) {
	if took > 0 && r.Sum.Wall > 0 {
		r.Took = toSeconds(took)
		r.Times = float64(r.Took / r.Sum.Wall)
	}
}

func (r report) print(out io.Writer) error {
	c := r.Rows
	_, err := fmt.Fprintf(out, "%d virtual servers with %d destinations, %d sets with %d entries, %d addresses; the fastest of %d\n\n",
		c.Servers, c.Destinations, c.Sets, c.Entries, c.Addresses, r.Runs)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "table\trows\tmessages\tsends\tKiB\tpacking ms\twall ms\tCPU ms\tµs a row\trooms ms\ttimes\t")
	for _, t := range append(r.Tables[:len(r.Tables):len(r.Tables)], r.Sum) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t%.1f\t%.2f\t%s\t\n", t.Name, t.Rows, t.Messages, t.Sends, t.Bytes>>10,
			t.Packing*1e3, t.Wall*1e3, t.CPU*1e3, float64(t.Wall)*1e6/float64(max(t.Rows, 1)), t.byRooms())
	}
	if err := errors.Join(err, w.Flush()); err != nil {
		return err
	}
	if r.Times > 0 {
		_, err = fmt.Fprintf(out, "\n%.3g s is %.1f times that.\n", r.Took, r.Times)
	}
	return err
}
