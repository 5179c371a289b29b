// Takes the first screenshot of a sandbox's browser. The variables are those of drive.test.mjs.
import { chromium } from 'playwright-core'

const { CRANNOG_URL: url, CRANNOG_SANDBOX: sandbox, CRANNOG_TOKEN: token } = process.env
const began = performance.now()
const browser = await chromium.connectOverCDP(url, { headers: { 'E2b-Sandbox-Id': sandbox, 'E2b-Sandbox-Port': '49222', 'X-Access-Token': token } })
const page = browser.contexts()[0].pages()[0]
await page.goto('data:text/html,<body style="background:teal">')
const png = await page.screenshot()
if (png.length < 100) throw new Error('the screenshot is empty')
console.log(Math.round(performance.now() - began))
await browser.close()
