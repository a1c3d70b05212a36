package kube

// Bound has lists and events of a source that does not run yet be no longer than so many
// bytes.
func (s *Source) Bound(bytes int64) { s.mostList, s.mostEvent = bytes, bytes }
