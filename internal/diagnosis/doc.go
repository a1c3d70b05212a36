// Package diagnosis has questions to a node and their answers: a state, what was found, and a remedy. It asks
// nothing itself.
package diagnosis
