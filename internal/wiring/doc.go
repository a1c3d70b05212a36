// Package wiring translates settings into the options of the packages that they are for: modes,
// compilers, rules, the client of the API server. The daemon and the verbs that work without it
// take them from here, so that both compute the same rows.
package wiring
