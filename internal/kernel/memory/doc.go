// Package memory finds the limit of this process's memory, and sets its score for the OOM killer. Both
// belong to the process: nothing is left to restore when it ends.
package memory
