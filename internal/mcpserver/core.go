package mcpserver

// addCore adds the tools for commands, files and logs in a sandbox, and prompts.
func (w *view) addCore() {
	w.addBash()
	w.addProcess()
	w.addPython()
	w.addReadFile()
	w.addWriteFile()
	w.addEditFile()
	w.addListFiles()
	w.addSearchFiles()
	w.addChanges()
	w.addPort()
	w.addStates()
	w.addAccess()
	w.addPolicy()
	w.resources()
	w.prompts()
}

// addAdmin adds the tool that manages sandboxes.
func (w *view) addAdmin() { w.addSandbox() }
