// Definitions are written, checked, compared and deleted in the browser.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Agent, Browser, eventually } from './world.mjs';

let agent;
let b;
let page;

before(async () => {
  agent = await Agent.waiting();
  b = await Browser.start(agent);
  page = b.page;
  await b.home();
});
after(async () => {
  await b?.close();
  await agent?.close();
});

const heading = (name) => b.heading(name);
const area = () => page.getByRole('textbox', { name: 'Document' });
const save = () => page.getByRole('button', { name: 'Save' });
const good = () => page.getByText('No faults.').waitFor();

test('a definition is checked while it is typed, and saved', async () => {
  await page.goto(`${agent.url}/#/definitions/clustertemplates/shop`);
  await page.getByRole('link', { name: 'Edit …' }).click();
  await heading('Edit shop');
  await good();
  await page.getByText('The smallest cluster of this template has 3 nodes.').waitFor();
  assert.ok(await save().isDisabled()); // nothing has changed
  const text = await area().inputValue();
  await area().fill(text.replace('hardwaretype: small', 'hardwaretype: smal'));
  await page.getByText('there is no hardware type "smal"').waitFor();
  assert.ok(await save().isDisabled());
  await area().fill(text.replace('min: 3', 'min: three'));
  // The way to the line of the fault.
  const line = page.getByRole('button', { name: /^line / }).first();
  await line.click();
  assert.equal(await area().evaluate((a) => a.value.slice(a.selectionStart, a.selectionEnd).trim()), 'min: three');
  await b.good('define-fault');
  await area().fill('name: [');
  await page.getByRole('button', { name: /^line / }).first().waitFor();
  await area().fill(text.replace('Welcome to the shop', 'Moin'));
  await good();
  await page.locator('.diff .added').getByText('Moin').waitFor();
  await page.locator('.diff .removed').getByText('Welcome').waitFor();
  await b.good('define');
  // Somebody else writes a version meanwhile. It is not overwritten unseen.
  const t = await agent.api('GET', '/v1/clustertemplates/shop');
  await agent.api('PUT', '/v1/clustertemplates/shop', { ...t, label: 'The Shop' });
  await save().click();
  await page.getByText(/version 2 was written meanwhile/).waitFor();
  await page.locator('.diff .removed').getByText('label: The Shop').waitFor();
  assert.equal((await agent.api('GET', '/v1/clustertemplates/shop')).version, 2);
  await save().click();
  await heading('shop');
  const now = await agent.api('GET', '/v1/clustertemplates/shop');
  assert.deepEqual([now.version, now.defaults.config.shop.greeting, now.label], [3, 'Moin', 'Shop']);
  assert.deepEqual(b.complaints('422', '400'), []);
});

test('versions are compared, and an old one is used again', async () => {
  await page.getByRole('navigation', { name: 'shop' }).getByRole('link', { name: 'Versions' }).click();
  await page.getByRole('combobox', { name: 'Compare' }).selectOption('version 1');
  await page.locator('.diff .added').getByText('Moin').waitFor();
  await b.good('versions');
  await page.getByRole('link', { name: 'Use again: version 1', exact: true }).click();
  await heading('Edit shop');
  await page.locator('.diff .removed').getByText('Moin').waitFor();
  await good();
  await save().click();
  await heading('shop');
  assert.equal((await agent.api('GET', '/v1/clustertemplates/shop')).defaults.config.shop.greeting, 'Welcome to the shop');
  assert.deepEqual(b.complaints(), []);
});

test('what uses a definition is shown, and one in use is not deleted', async () => {
  await agent.api('POST', '/v1/clusters', { name: 'my-shop', clusterTemplate: 'shop', numMachines: 3 });
  await page.goto(`${agent.url}/#/definitions/services/shop-store?tab=usedBy`);
  await page.getByRole('heading', { name: 'Templates (1)' }).waitFor();
  await page.getByRole('heading', { name: 'Services (1)' }).waitFor(); // shop-web requires it
  await page.getByRole('link', { name: 'my-shop' }).waitFor();
  await b.good('used-by');
  for (const [kind, name, user] of [
    ['clustertemplates', 'shop', 'my-shop'], ['hardwaretypes', 'small', 'shop'], ['imagetypes', 'empty', 'shop'], ['providers', 'local', 'my-shop'],
  ]) {
    await page.goto(`${agent.url}/#/definitions/${kind}/${name}?tab=usedBy`);
    await page.getByRole('main').getByRole('list').getByRole('link', { name: user, exact: true }).waitFor();
  }
  await page.goto(`${agent.url}/#/definitions/services/shop-store`);
  await page.getByRole('button', { name: 'Delete …' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('alert').getByText(/is in use by/).waitFor();
  await b.good('delete-refused');
  await page.keyboard.press('Escape');
  assert.deepEqual(b.complaints('409'), []);
});

test('a new definition is written as JSON, and deleted', async () => {
  await page.goto(`${agent.url}/#/definitions/hardwaretypes`);
  await page.getByRole('link', { name: 'New hardware type …' }).click();
  await heading('New hardware type');
  await area().fill('{"name": "huge", "providermap": {"local": {"flavor": "huge"}}}');
  await good();
  await page.getByText('coopr hardwaretype put hardwaretype.json').waitFor();
  await b.good('define-new');
  await save().click();
  await heading('huge');
  await page.getByRole('navigation', { name: 'huge' }).getByRole('link', { name: 'Used by' }).click();
  await page.getByText('Nothing uses this definition.').waitFor();
  await page.getByRole('button', { name: 'Delete …' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await heading('Definitions');
  await page.getByText('1 definition', { exact: true }).waitFor();
  assert.deepEqual(b.complaints('422'), []); // of what is checked before it is complete
});

test('files are imported, all or none', async () => {
  const dir = join(agent.dir, 'new');
  mkdirSync(join(dir, 'hardwaretypes'), { recursive: true });
  writeFileSync(join(dir, 'hardwaretypes', 'tiny.yaml'), '# tiny\nname: tiny\nprovidermap:\n  local: {flavor: tiny}\n---\nname: wrong\nprovidermap: 7\n');
  writeFileSync(join(dir, 'hardwaretypes', 'more.json'), '{"name": "more", "providermap": {"local": {"flavor": "more"}}}');
  writeFileSync(join(dir, 'readme.txt'), 'no definitions');
  await page.goto(`${agent.url}/#/import`);
  await heading('Import definitions');
  await page.getByLabel('Folder').setInputFiles(dir);
  await page.getByText('2 files chosen; 1 other file in the folder holds no definitions').waitFor();
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByText('Nothing is written, because of these faults:').waitFor();
  const fault = await page.locator('.trouble li').first().innerText();
  assert.match(fault, /line 7/);
  assert.match(fault, /new\/hardwaretypes\/tiny\.yaml/);
  await b.good('import-refused');
  writeFileSync(join(dir, 'hardwaretypes', 'tiny.yaml'), 'name: tiny\nprovidermap:\n  local: {flavor: tiny}\n---\nname: <b>\n'.split('---')[0]);
  await page.getByLabel('Folder').setInputFiles(dir);
  await page.getByLabel('Or as a text').fill('kind: imagetype\nname: typed\nprovidermap:\n  local: {image: typed}\n');
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('rowheader', { name: 'typed' }).waitFor();
  assert.equal(await page.getByRole('rowheader').count(), 3);
  await page.getByRole('button', { name: 'Import' }).click();
  await page.getByRole('heading', { name: 'What was written' }).waitFor();
  await page.getByRole('link', { name: 'tiny' }).click();
  await heading('tiny');
  await eventually('all are there', async () => (await agent.api('GET', '/v1/hardwaretypes')).length === 3);
  assert.deepEqual(b.complaints('422', '400'), []);
});

test('a user who may not write definitions is told so', async () => {
  const user = { name: 'ulla', role: 'user', password: 'four random words here' };
  await agent.api('POST', '/v1/users', user);
  const context = await b.browser.newContext();
  try {
    const other = await context.newPage();
    await other.goto(agent.url);
    await other.getByLabel('Tenant').fill('default');
    await other.getByLabel('Name', { exact: true }).fill('ulla');
    await other.getByLabel('Password').fill(user.password);
    await other.keyboard.press('Enter');
    await other.getByText('ulla (default)').waitFor();
    await other.goto(`${agent.url}/#/definitions/services/shop-web`);
    await other.getByLabel('Document').waitFor();
    for (const name of ['Edit …', 'New service …', 'Import …']) assert.equal(await other.getByRole('link', { name }).count(), 0, name);
    assert.equal(await other.getByRole('button', { name: 'Delete …' }).count(), 0);
    for (const place of ['define/services/shop-web', 'define/services', 'import']) {
      await other.goto(`${agent.url}/#/${place}`);
      await other.getByText('You may not write this definition.').waitFor();
    }
    const refused = await other.evaluate(() => fetch('/v1/import', {
      method: 'POST', body: '{"hardwaretypes":[{"name":"x"}]}', headers: { 'Coopr-Csrf': '1', 'Content-Type': 'application/json' },
    }).then((r) => r.status));
    assert.equal(refused, 403);
  } finally {
    await context.close();
  }
});
