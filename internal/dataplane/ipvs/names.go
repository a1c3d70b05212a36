package ipvs

// pick returns a if yes is true, else b.
func pick[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}
