// Package cli has the verbs of the command line, a file each: flags, arguments, output, exit
// status. The packages that a verb calls contain its logic.
package cli
