// Package cli has the verbs of the command line, a file each: flags, arguments, output, exit
// status. What a verb does is in the packages that it calls.
package cli
