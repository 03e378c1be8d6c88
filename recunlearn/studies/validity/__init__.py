"""The validity study: does a difficulty score predict what unlearning does to users who were held out?"""
