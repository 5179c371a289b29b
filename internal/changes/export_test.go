package changes

// Watched calls step before each step of an Apply, which does without
// exchanging files if it is apart.
func Watched(o ApplyOptions, step func(string), apart bool) ApplyOptions {
	o.step, o.apart = step, apart
	return o
}
