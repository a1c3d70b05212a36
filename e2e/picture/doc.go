// Package picture draws the diagrams of the pages. Each is a text file with boxes on a grid and
// arrows between them, and an SVG beside it:
//
//	grid 150 96                 width and height of a cell
//	box agent 3 1 agent / one loop / takes, compiles, applies
//	box kernel 6 1 kernel dashed
//	arrow catalog agent dirty Services
//	both agent plan
//
// go test ./e2e/picture -update draws them again; without -update the test compares. It has only
// tests.
package picture
