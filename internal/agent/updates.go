package agent

import (
	"slices"
	"time"

	"go.uber.org/zap"
)

const (
	// sayEvery is the time between two lines of the log about what was written, while
	// something is all the time. A line for each pass would be most of the log then, and
	// whoever reads it may be slow: the loop waits for it.
	sayEvery = time.Second
	// sayAtOnce are the lines that come at once after a rest of that time.
	sayAtOnce = 8
)

// updates adds up the passes that the log was not told of yet.
type updates struct {
	passes int
	sum    Cycle
	told   time.Time
	// atOnce are the lines since the last rest, sayAtOnce at most.
	atOnce int
}

// add joins a pass to those before it.
func (u *updates) add(c Cycle) {
	u.passes++
	u.sum.Took += c.Took
	u.sum.Services += c.Services
	u.sum.Pending = c.Pending
	for _, rows := range c.Rows {
		i := slices.IndexFunc(u.sum.Rows, func(r TableRows) bool { return r.Table == rows.Table })
		if i < 0 {
			u.sum.Rows = append(u.sum.Rows, rows)
			continue
		}
		sum := &u.sum.Rows[i]
		sum.Adds, sum.Updates, sum.Deletes, sum.Failed = sum.Adds+rows.Adds, sum.Updates+rows.Updates, sum.Deletes+rows.Deletes, sum.Failed+rows.Failed
	}
}

// tellUpdate tells the log of a pass that wrote something, at once if it was told of few
// lately.
func (a *Agent) tellUpdate(c Cycle) {
	u := &a.updates
	u.add(c)
	wait := sayEvery - c.At.Add(c.Took).Sub(u.told)
	if wait <= 0 && !a.saying.set { // a set timer is one that is about to fire
		u.atOnce = 0
	}
	if u.atOnce == sayAtOnce {
		a.saying.armUnlessSet(wait)
		return
	}
	u.atOnce++
	a.sayUpdated()
}

// sayUpdated tells the log of all passes since it was told last.
func (a *Agent) sayUpdated() {
	u := &a.updates
	fields := []zap.Field{zap.Int("services", u.sum.Services), zap.Array("rows", rowCounts(u.sum.Rows)),
		zap.Duration("took", u.sum.Took), zap.Int("pending", u.sum.Pending)}
	if u.passes > 1 {
		fields = append(fields, zap.Int("passes", u.passes))
	}
	a.log.Info("kernel updated", fields...)
	*u = updates{told: time.Now(), atOnce: u.atOnce}
}
