// Package printable makes text from untrusted sources safe to print. Names, labels and paths from
// manifests or the network may have control characters, which can move a terminal's cursor or forge
// lines of a log. Here these become JSON escapes like \u001b, so that a line of JSON stays one
// line. All other text stays as it is.
package printable
