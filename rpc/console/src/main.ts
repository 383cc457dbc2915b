import { mount } from 'svelte';
import './app.css';
import App from './App.svelte';
import { restoreTheme } from './lib/theme';

restoreTheme();
mount(App, { target: document.getElementById('app')! });
