package scheduler_test

import (
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

func ExampleParse() {
	s, err := scheduler.Parse("sh", "sh-port")
	fmt.Println(s, s.Algorithm().Module, err)

	_, err = scheduler.Parse("sh", "sticky")
	fmt.Println(err)
	// Output:
	// sh (sh-port) ip_vs_sh <nil>
	// unknown scheduler flag "sticky" for scheduler "sh": use sh-fallback or sh-port
}

func ExampleAlgorithms() {
	for _, a := range scheduler.Algorithms()[:2] {
		fmt.Printf("%-4s weight %-8s %s\n", a.Name, a.Weight, a.Summary)
	}
	// Output:
	// rr   weight ignored  round robin: each destination in turn
	// wrr  weight share    weighted round robin: in turn, in proportion to the weights
}
