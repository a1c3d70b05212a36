package link

// WithKind makes a handle keep a link of another type than dummy, so that the
// contract runs on kernels that were built without dummy links.
func (o Options) WithKind(kind string) Options {
	o.kind = kind
	return o
}
