package agent

import "go.uber.org/zap/zapcore"

// rowCounts logs the rows of a cycle, a table each.
type rowCounts []TableRows

// MarshalLogArray implements zapcore.ArrayMarshaler.
func (r rowCounts) MarshalLogArray(enc zapcore.ArrayEncoder) error {
	for _, t := range r {
		if err := enc.AppendObject(t); err != nil {
			return err
		}
	}
	return nil
}

// MarshalLogObject implements zapcore.ObjectMarshaler; what is zero is left out.
func (t TableRows) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("table", t.Table)
	for _, c := range []struct {
		name string
		n    int
	}{{"adds", t.Adds}, {"updates", t.Updates}, {"deletes", t.Deletes}, {"failed", t.Failed}} {
		if c.n > 0 {
			enc.AddInt(c.name, c.n)
		}
	}
	return nil
}
