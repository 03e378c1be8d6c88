from recunlearn.commands import main

main()
