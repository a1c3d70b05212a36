// Package prose checks the language of the repository: Markdown, comments of Go and texts that
// the programs print. It also compares the pages that list log keys, note codes and alerts with
// the code.
//
// Each rule is an expression in rules_test.go, with an example of what it finds and of what it
// accepts in TestRules. A finding that has to stay is a quotation, listed with its reason.
//
//	KUBE_IPVS_PROSE=internal/plan go test ./e2e/prose   prints the findings of some files
//	KUBE_IPVS_PROSE_SAMPLE=39 go test ./e2e/prose       draws sentences for a reading test
//
// The check runs in make lint. It has only tests.
package prose
