// Both clients connect to the address that crannog browser prints, as the program that starts this
// one has read it: it is the variable CRANNOG_CDP. It prints what they see.
import { chromium } from 'playwright-core'
import puppeteer from 'puppeteer-core'

const address = process.env.CRANNOG_CDP
const playwright = await chromium.connectOverCDP(address)
const pages = playwright.contexts()[0].pages()
const titles = await Promise.all(pages.map((p) => p.title()))
const page = await playwright.contexts()[0].newPage()
const answer = await page.goto(process.env.CRANNOG_DENIED)
const refusal = { status: answer.status(), title: await page.title(), text: await page.innerText('body'), type: answer.headers()['content-type'] }
await playwright.close()

const second = await puppeteer.connect({ browserWSEndpoint: address })
const version = await second.version()
await second.disconnect()
console.log(JSON.stringify({ titles, refusal, version }))
