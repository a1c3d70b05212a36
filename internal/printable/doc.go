// Package printable makes text of strangers safe to look at. Names, labels and paths that
// come from manifests or the network may have control characters, which move a terminal's
// cursor or forge lines of a log; here they become escapes of JSON, like \u001b, so that a
// line of JSON stays one. All other text stays as it is.
package printable
