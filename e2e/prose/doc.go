// Package prose checks the language of the repository: Markdown, comments of Go and texts that
// the programs print. It also compares the pages that list log keys, note codes and alerts with
// the code.
//
// testdata/accepted.txt has the number of findings of each file that were there when the check
// was added. A file may have fewer findings than that, and never more. After a file was improved
//
//	go test ./e2e/prose -update
//
// lowers its number. The check runs in make lint. It has only tests.
package prose
